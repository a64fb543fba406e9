"""Links between answers, for clients that browse."""

from __future__ import annotations

from hsparse.sn.context import Context

Href = dict[str, str]


def href(context: Context, path: str, domain: str | None = None) -> str:
    """Return an absolute URL: with `domain`, or the request's own `domain` parameter if it has one."""
    request = context.request
    named = domain if domain is not None else request.query.get("domain")
    query = f"?domain={named}" if named else ""
    return f"{request.scheme}://{request.host}{path}{query}"


def hrefs(context: Context, **paths: str) -> list[Href]:
    """Return `[{"rel": name, "href": URL}]` of each named path."""
    return [{"rel": rel, "href": href(context, path)} for rel, path in paths.items()]


def domain_hrefs(context: Context, path: str, root: str | None, *, home: bool = False) -> list[Href]:
    """Return the links of a domain or, with `root` None, of a folder."""
    found = hrefs(context, self="/")
    if root is None:
        folder = href(context, "/domains")
        found.append({"rel": "domains", "href": folder if folder.endswith("/") else folder + "/"})
    else:
        found += hrefs(
            context, database="/datasets", groupbase="/groups", typebase="/datatypes", root=f"/groups/{root}"
        )
    if home:
        found += hrefs(context, home="/")
    found += hrefs(context, acls="/acls")
    parent = path.rpartition("/")[0]
    if parent:
        bucket = context.service.settings.bucket
        found.append({"rel": "parent", "href": href(context, "/", domain=bucket + parent)})
    return found
