"""Domains, folders and who set their rights; links of answers, preflights and buckets."""

from __future__ import annotations

from tests.sn.recording import PATH, Ask, ask, differs, links, make, part, same

RIGHTS = {
    "create": False,
    "read": True,
    "update": False,
    "delete": False,
    "readACL": False,
    "updateACL": False,
}
FOLDER = "/home/test_user1"
OWN = {"create": True, "read": True, "update": True, "delete": True, "readACL": True, "updateACL": True}
GROWS = make(
    "datasets", "<d1>", type="H5T_STD_I8LE", shape=[0], maxdims=[0], link={"id": "<g0>", "name": "d"}
)

ROWS = (
    same(
        "the top level",
        ask("GET", "/", domain=None, reply={"domains": [part(name="/home")],
            "hrefs": [{"rel": "self", "href": "http://HOST/"}]}),
        why="older texts say 400, and three links of a folder",
    ),
    differs(
        "a bad query of a listing",
        "400 says what is wrong with it; an empty list looks like an answer",
        ask("GET", "/domains", query="a >", domain=FOLDER + "/", ours=400),
    ),
    same(
        "a bulk listing has attributes",
        ask("PUT", "/groups/<g0>/attributes/a", {"type": "H5T_STD_I8LE", "value": 3}, 201),
        ask("PUT", "/", {"rescan": 1}, 204),
        ask("GET", "/", getobjs=1,
            reply=part(domain_objs=part(**{"<g0>": part(attributes=part(a=part(value=3)))}))),
    ),
    same(
        "no bulk listing of a new domain",
        GROWS,
        ask("GET", "/", getobjs=1, getdnids=1, reply={"class": "domain", "owner": "test_user1",
            "root": "<g0>", "created": "<number>", "lastModified": "<number>", "limits": part(),
            "compressors": ["..."], "version": "1.0.2", "dn_ids": ["..."], "hrefs": ["..."]}),
        why="h5pyd 1.0 keeps what it got at open, so that `refresh` would not see a dataset grow",
    ),
    same(
        "a bulk listing after a rescan",
        GROWS,
        ask("PUT", "/", {"flush": 1, "rescan": 1}, 204),
        ask("GET", "/", getobjs=1, reply=part(domain_objs=part(**{"<d1>": part(shape=part(dims=[0]))}))),
    ),
    same(
        "no bulk listing of a domain that grew",
        GROWS,
        ask("PUT", "/", {"rescan": 1}, 204),
        ask("PUT", "/datasets/<d1>/shape", {"shape": [4]}, 201),
        ask("GET", "/", getobjs=1, reply={"class": "domain", "owner": "test_user1", "root": "<g0>",
            "created": "<number>", "lastModified": "<number>", "limits": part(), "compressors": ["..."],
            "version": "1.0.2", "hrefs": ["..."]}),
        why="HSDS answers with the old summary until its next scan; hsparse with none for 10 seconds",
    ),
    differs(
        "a bulk listing for a client that refreshes",
        "h5pyd 0.24 asks for attributes too, and again at each refresh: it gets all objects, always fresh",
        GROWS,
        ask("GET", "/", getobjs=1, include_attrs=1, reply=part(domain_objs=part(**{"<d1>": part()}))),
    ),
    differs(
        "values in a bulk listing",
        "what a client keeps must not be older than the file it opens: members have no values",
        GROWS,
        ask("PUT", "/", {"rescan": 1}, 204),
        ask("GET", "/", getobjs=1, reply=part(domain_objs=part(**{"<d1>": {"id": "<d1>", "root": "<g0>",
            "shape": part(), "type": part(), "creationProperties": part(), "layout": part(),
            "created": "<number>", "lastModified": "<number>", "attributeCount": 0, "attributes": {}}}))),
    ),
    # --- other buckets
    differs(
        "linked_domain in another bucket",
        "HSDS takes it, and then looks for the objects in the link's own bucket: 404 after a restart",
        ask("PUT", "/", {"linked_domain": PATH, "linked_bucket": "other"}, 201, domain=f"{FOLDER}/l.h5",
            ours=404),
    ),
    same(
        "an external link into another bucket",
        ask("PUT", "/groups/<g0>/links/x", {"h5path": "/", "h5domain": f"other{PATH}"}, 201),
        ask("GET", "/", h5path="/x", follow_external_links=1, status=404),
    ),
    # --- ACLs
    same(
        "an entry says where it was set",
        ask("PUT", "/acls/test_user2", {"read": True}, 201),
        ask("PUT", "/acls/g:group", {"read": True}, 201),
        ask("PUT", "/acls/default", {"read": True}, 201),
        ask("GET", "/acls/test_user2",
            reply=part(acl={**RIGHTS, "domain": f"hsdstest{PATH}", "userName": "test_user2"})),
        ask("GET", "/acls/g:group", reply=part(acl=part(domain=f"hsdstest{PATH}"))),
        ask("GET", "/acls", reply=part(acls=[{**RIGHTS, "domain": f"hsdstest{PATH}", "userName": "default"},
            {**RIGHTS, "domain": f"hsdstest{PATH}", "userName": "g:group"},
            {**OWN, "userName": "test_user1"},
            {**RIGHTS, "domain": f"hsdstest{PATH}", "userName": "test_user2"}])),
    ),
    same(
        "an inherited entry keeps its origin until it is set again",
        ask("PUT", "/acls/test_user2", {"read": True}, 201, domain=FOLDER),
        ask("PUT", "/", {}, 201, part(acls={"test_user1": OWN,
            "test_user2": {**RIGHTS, "domain": f"hsdstest{FOLDER}"}}), domain=f"{FOLDER}/n.h5"),
        ask("PUT", "/acls/test_user2", {"update": False}, 201, domain=f"{FOLDER}/n.h5"),
        ask("GET", "/acls/test_user2", domain=f"{FOLDER}/n.h5", reply=part(acl={**RIGHTS,
            "domain": f"hsdstest{FOLDER}/n.h5", "userName": "test_user2"})),
    ),
    same(
        "entries made at creation have no origin",
        ask("PUT", "/", {"folder": 1}, 201, part(acls={"test_user1": OWN, "default": RIGHTS}),
            domain=f"{FOLDER}/sub"),
    ),
    same("an origin cannot be set", ask("PUT", "/acls/test_user2", {"read": True, "domain": "x"}, 400)),
    differs(
        "the user's name in the body",
        "h5pyd 0.24 sends back what it was answered",
        ask("PUT", "/acls/test_user2", {"read": True, "userName": "test_user2"}, 400, ours=201),
    ),
)  # fmt: skip


DATASET = make("datasets", "<d1>", type="H5T_STD_I32LE", shape=[4], link={"id": "<g0>", "name": "d"})
PLAIN = make("datasets", "<d1>", type="H5T_STD_I32LE", shape=[4])
TABLE = make(
    "datasets",
    "<d1>",
    type={"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": "H5T_STD_I32LE"}]},
    shape=[4],
    value=[[1], [2], [3], [4]],
)
ATTRIBUTE = ask("PUT", "/groups/<g0>/attributes/a", {"type": "H5T_STD_I8LE", "value": 1}, 201)
LINK = ask("PUT", "/groups/<g0>/links/l", {"id": "<g0>"}, 201, rels="")
VALUE_RELS = "self root home owner"
ORIGIN = {"Origin": "http://page.example", "Access-Control-Request-Method": "GET"}


def sized(*dims: int) -> Ask:
    """Return the creation of a dataset of these dimensions."""
    return make("datasets", "<d1>", type="H5T_STD_I8LE", shape=list(dims))


def previewed(select: str, *dims: int) -> tuple[Ask, Ask]:
    """Return the creation of a dataset and the request whose last link selects this."""
    href = f"http://HOST/datasets/<d1>/value?domain=/home/test_user1/f.h5&select={select}"
    own = links("self /datasets/<d1>", "root /groups/<g0>", "home /", "attributes /datasets/<d1>/attributes")
    return sized(*dims), ask(
        "GET", "/datasets/<d1>", reply=part(hrefs=[*own, {"rel": "preview", "href": href}])
    )


HREFS = (
    same("domain", ask("GET", "/", rels="self database groupbase typebase root acls parent")),
    same("folder", ask("GET", "/", domain=FOLDER, rels="self domains acls parent")),
    same("top-level folder", ask("GET", "/", domain="/home", rels="self domains acls")),
    same(
        "no domain",
        ask("GET", "/", domain=None, rels="self"),
        ask("GET", "/domains", domain=None, rels="self"),
    ),
    same(
        "items of a folder",
        ask("GET", "/domains", domain=FOLDER + "/", rels="self",
            reply=part(domains=[part(hrefs=[{"rel": "domain", "href": f"http://HOST/?domain={FOLDER}/f.h5"}])])),
    ),
    same(
        "object by path",
        ask("GET", "/", h5path="/", rels="self database groupbase typebase root home acls parent"),
    ),
    same(
        "collections",
        *(ask("GET", f"/{name}", rels="self root home") for name in ("groups", "datasets", "datatypes")),
    ),
    same(
        "group",
        ask("GET", "/groups/<g0>", rels="self links root home attributes"),
        ask("GET", "/groups/", h5path="/", rels="self links root home attributes"),
    ),
    same(
        "dataset of up to 100 elements",
        DATASET,
        ask("GET", "/datasets/<d1>", rels="self root home attributes data"),
        ask("GET", "/datasets/", h5path="/d", rels="self root home attributes data"),
    ),
    same(
        "dataset without elements",
        sized(0),
        ask("GET", "/datasets/<d1>", rels="self root home attributes data"),
    ),
    same("dataset of a scalar", sized(), ask("GET", "/datasets/<d1>", rels="self root home attributes data")),
    same(
        "null dataspace",
        make("datasets", "<d1>", type="H5T_STD_I8LE", shape="H5S_NULL"),
        ask("GET", "/datasets/<d1>", rels="self root home attributes"),
    ),
    same("preview, one dimension", *previewed("[0:100]", 101)),
    same("preview, of equal length", *previewed("[0:100,0:1]", 200, 100)),
    same("preview, flat", *previewed("[0:20,0:5]", 20, 1000)),
    same("preview, high", *previewed("[0:5,0:20]", 1000, 20)),
    same("preview, of four dimensions", *previewed("[0:1,0:1,0:9,0:11]", 9, 9, 9, 50)),
    same("preview, that fits", *previewed("[0:1,0:10,0:10]", 9, 10, 10)),
    same(
        "committed type",
        make("datatypes", "<t1>", type="H5T_STD_I8LE", link={"id": "<g0>", "name": "t"}),
        ask("GET", "/datatypes/<t1>", rels="self root home attributes"),
        ask("GET", "/datatypes/", h5path="/t", rels="self root home attributes"),
    ),
    same(
        "shape and type",
        PLAIN,
        ask("GET", "/datasets/<d1>/shape", reply=part(hrefs=links("self /datasets/<d1>/shape",
            "owner /datasets/<d1>", "root /groups/<g0>"))),
        ask("GET", "/datasets/<d1>/type", rels="self owner root"),
    ),
    same(
        "links",
        LINK,
        ask("GET", "/groups/<g0>/links", rels="self home owner",
            reply=part(links=[part(href=f"http://HOST/groups/<g0>/links/l?domain={FOLDER}/f.h5",
            target=f"http://HOST/groups/<g0>?domain={FOLDER}/f.h5")])),
        ask("GET", "/groups/<g0>/links", rels="self home owner", follow_links=1),
        ask("GET", "/groups/<g0>/links/l", rels="self home owner target"),
        ask("PUT", "/groups/<g0>/links/s", {"h5path": "/x"}, 201, rels=""),
        ask("GET", "/groups/<g0>/links/s", rels="self home owner"),
        ask("PUT", "/groups/<g0>/links/s", {"h5path": "/x"}, 200, rels=""),
    ),
    same(
        "attributes",
        ATTRIBUTE,
        ask("GET", "/groups/<g0>/attributes", rels="self home owner",
            reply=part(attributes=[part(href=f"http://HOST/groups/<g0>/attributes/a?domain={FOLDER}/f.h5")])),
        ask("GET", "/groups/<g0>/attributes", rels="self home owner", follow_links=1),
        ask("GET", "/groups/<g0>/attributes/a", rels="self home owner"),
        ask("GET", "/groups/<g0>/attributes/a/value",
            reply=part(hrefs=links("self /groups/<g0>/attributes/a", "home /", "owner /groups/<g0>"))),
        ask("DELETE", "/groups/<g0>/attributes", attr_names="a", rels=""),
    ),
    same(
        "ACLs",
        ask("GET", "/acls", reply=part(hrefs=links("self /acls", "root /groups/<g0>", "home /", "owner /"))),
        ask("GET", "/acls/test_user1", rels="self root home owner"),
        ask("GET", "/acls", domain=FOLDER, rels="self home owner"),
    ),
    same(
        "values",
        DATASET,
        ask("GET", "/datasets/<d1>/value", reply={"status": 200, "value": [0, 0, 0, 0],
            "hrefs": links("self /datasets/<d1>/value", "root /groups/<g0>", "home /",
            "owner /datasets/<d1>")}),
        ask("GET", "/datasets/<d1>/value", select="[0:2]", rels=VALUE_RELS),
    ),
    same("values by POST", PLAIN, ask("POST", "/datasets/<d1>/value", {"points": [1]}, rels=VALUE_RELS)),
    same(
        "values of fields and queries",
        TABLE,
        ask("GET", "/datasets/<d1>/value", fields="a", rels=VALUE_RELS),
        ask("GET", "/datasets/<d1>/value", query="a > 2", rels=VALUE_RELS),
        ask("PUT", "/datasets/<d1>/value", {"a": 7}, query="a == 2", rels=VALUE_RELS,
            reply=part(indices=[[1]])),
    ),
    same(
        "a domain in the header is in no link",
        ask("GET", "/groups/<g0>", domain=None, sent={"X-Hdf-domain": f"{FOLDER}/f.h5"},
            reply=part(hrefs=[{"rel": "self", "href": "http://HOST/groups/<g0>"},
            {"rel": "links", "href": "http://HOST/groups/<g0>/links"},
            {"rel": "root", "href": "http://HOST/groups/<g0>"}, {"rel": "home", "href": "http://HOST/"},
            {"rel": "attributes", "href": "http://HOST/groups/<g0>/attributes"}])),
    ),
    same(
        "the parent has the bucket",
        ask("GET", "/", domain=FOLDER,
            reply=part(hrefs=[*({"rel": rel, "href": f"http://HOST{path}?domain={FOLDER}{end}"} for rel,
            path, end in (("self", "/", ""), ("domains", "/domains", "/"), ("acls", "/acls", ""))),
            {"rel": "parent", "href": "http://HOST/?domain=hsdstest/home"}])),
    ),
    same(
        "answers without links",
        ask("GET", "/about", rels="none"),
        ask("POST", "/groups", {}, 201, part(id="<g1>"), rels="none"),
        ask("POST", "/groups/<g0>/links", {"grp_ids": ["<g0>"]}, rels="none"),
        ask("PUT", "/acls/joe", {"read": True}, 201, rels="none"),
    ),
    differs(
        "several links set",
        "`hrefs` is an empty list there: harmless, and the same as for one link",
        ask("PUT", "/groups/<g0>/links", {"links": {"x": {"h5path": "/x"}}}, 201, {"hrefs": []}),
    ),
    differs(
        "values by POST have a status",
        "points are answered as selections are",
        PLAIN,
        ask("POST", "/datasets/<d1>/value", {"points": [1]}, reply=part(status=200)),
    ),
    # --- preflights
    same(
        "preflight",
        ask("OPTIONS", "/about", sent=ORIGIN, told={"Access-Control-Allow-Methods": "GET"}),
        ask("OPTIONS", "/", sent=ORIGIN | {"Access-Control-Request-Method": "DELETE"},
            told={"Access-Control-Allow-Methods": "DELETE"}),
    ),
    differs(
        "preflight of a method that no route has",
        "the full list tells a program what there is; a browser refuses the request all the same",
        ask("OPTIONS", "/about", status=403, ours=200,
            sent=ORIGIN | {"Access-Control-Request-Method": "BREW"},
            told={"Access-Control-Allow-Methods": "GET, HEAD, POST, DELETE, PUT, OPTIONS"}),
    ),
    differs(
        "preflight with credentials",
        "any origin echoed with credentials would let any page use a browser that has signed in",
        ask("OPTIONS", "/about", sent=ORIGIN, told={"Access-Control-Allow-Origin": "*"}),
    ),
    # --- buckets
    same(
        "malformed buckets",
        *(ask("GET", path, bucket=name, status=400) for path in ("/", "/domains", "/groups/<g0>")
            for name in ("bad/bucket", "a b", ".", "..")),
        ask("GET", "/", sent={"X-Hdf-bucket": "bad/bucket"}, status=400),
    ),
    same(
        "well-formed buckets",
        ask("GET", "/", bucket="other", status=404),
        ask("GET", "/", sent={"X-Hdf-bucket": "other"}, status=404),
        ask("GET", "/", domain="other/home/test_user1/f.h5", status=404),
        ask("GET", "/", bucket=""),
        ask("GET", "/", bucket="hsdstest"),
        ask("GET", "/", domain="hsdstest/home/test_user1/f.h5"),
        ask("GET", "/", bucket="hsdstest", sent={"X-Hdf-bucket": "other"}),
    ),
)  # fmt: skip
