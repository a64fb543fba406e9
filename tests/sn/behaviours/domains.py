"""Domains, folders, and who set their rights."""

from __future__ import annotations

from tests.sn.behaviours.behaviour import PATH, ask, differs, make, part, same

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
        ask(
            "GET",
            "/",
            domain=None,
            reply={"domains": [part(name="/home")], "hrefs": [{"rel": "self", "href": "http://HOST/"}]},
        ),
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
        ask(
            "GET",
            "/",
            getobjs=1,
            reply=part(domain_objs=part(**{"<g0>": part(attributes=part(a=part(value=3)))})),
        ),
    ),
    same(
        "no bulk listing of a new domain",
        GROWS,
        ask(
            "GET",
            "/",
            getobjs=1,
            getdnids=1,
            reply={
                "class": "domain",
                "owner": "test_user1",
                "root": "<g0>",
                "created": "<number>",
                "lastModified": "<number>",
                "limits": part(),
                "compressors": ["..."],
                "version": "1.0.2",
                "dn_ids": ["..."],
                "hrefs": ["..."],
            },
        ),
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
        ask(
            "GET",
            "/",
            getobjs=1,
            reply={
                "class": "domain",
                "owner": "test_user1",
                "root": "<g0>",
                "created": "<number>",
                "lastModified": "<number>",
                "limits": part(),
                "compressors": ["..."],
                "version": "1.0.2",
                "hrefs": ["..."],
            },
        ),
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
        ask(
            "GET",
            "/",
            getobjs=1,
            reply=part(
                domain_objs=part(
                    **{
                        "<d1>": {
                            "id": "<d1>",
                            "root": "<g0>",
                            "shape": part(),
                            "type": part(),
                            "creationProperties": part(),
                            "layout": part(),
                            "created": "<number>",
                            "lastModified": "<number>",
                            "attributeCount": 0,
                            "attributes": {},
                        }
                    }
                )
            ),
        ),
    ),
    # --- other buckets
    differs(
        "linked_domain in another bucket",
        "HSDS takes it, and then looks for the objects in the link's own bucket: 404 after a restart",
        ask(
            "PUT",
            "/",
            {"linked_domain": PATH, "linked_bucket": "other"},
            201,
            domain=f"{FOLDER}/l.h5",
            ours=404,
        ),
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
        ask(
            "GET",
            "/acls/test_user2",
            reply=part(acl={**RIGHTS, "domain": f"hsdstest{PATH}", "userName": "test_user2"}),
        ),
        ask("GET", "/acls/g:group", reply=part(acl=part(domain=f"hsdstest{PATH}"))),
        ask(
            "GET",
            "/acls",
            reply=part(
                acls=[
                    {**RIGHTS, "domain": f"hsdstest{PATH}", "userName": "default"},
                    {**RIGHTS, "domain": f"hsdstest{PATH}", "userName": "g:group"},
                    {**OWN, "userName": "test_user1"},
                    {**RIGHTS, "domain": f"hsdstest{PATH}", "userName": "test_user2"},
                ]
            ),
        ),
    ),
    same(
        "an inherited entry keeps its origin until it is set again",
        ask("PUT", "/acls/test_user2", {"read": True}, 201, domain=FOLDER),
        ask(
            "PUT",
            "/",
            {},
            201,
            part(acls={"test_user1": OWN, "test_user2": {**RIGHTS, "domain": f"hsdstest{FOLDER}"}}),
            domain=f"{FOLDER}/n.h5",
        ),
        ask("PUT", "/acls/test_user2", {"update": False}, 201, domain=f"{FOLDER}/n.h5"),
        ask(
            "GET",
            "/acls/test_user2",
            domain=f"{FOLDER}/n.h5",
            reply=part(acl={**RIGHTS, "domain": f"hsdstest{FOLDER}/n.h5", "userName": "test_user2"}),
        ),
    ),
    same(
        "entries made at creation have no origin",
        ask(
            "PUT",
            "/",
            {"folder": 1},
            201,
            part(acls={"test_user1": OWN, "default": RIGHTS}),
            domain=f"{FOLDER}/sub",
        ),
    ),
    same("an origin cannot be set", ask("PUT", "/acls/test_user2", {"read": True, "domain": "x"}, 400)),
    differs(
        "the user's name in the body",
        "h5pyd 0.24 sends back what it was answered",
        ask("PUT", "/acls/test_user2", {"read": True, "userName": "test_user2"}, 400, ours=201),
    ),
)
