"""What the recorded store holds: some of each kind of thing, put there and changed by REST."""

from __future__ import annotations

from typing import Any

import requests

Json = dict[str, Any]
HOME = "/home/admin/"
FULL, SHARED = HOME + "full.h5", HOME + "shared.h5"
FILE = "data/run.bin"
"""The key of a file that datasets get their data from, and its bytes."""
FILE_BYTES = bytes(range(256)) * 32
INT, FLOAT = "H5T_STD_I32LE", "H5T_IEEE_F64LE"
TEXT = {
    "class": "H5T_STRING",
    "length": "H5T_VARIABLE",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
}
RAGGED = {"class": "H5T_VLEN", "base": INT}
FIXED_TEXT = {"class": "H5T_STRING", "length": 4, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
PAIR = {"class": "H5T_COMPOUND", "fields": [{"name": "n", "type": INT}, {"name": "s", "type": FIXED_TEXT}]}
PLACE = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "offset", "type": "H5T_STD_I64LE"}, {"name": "size", "type": "H5T_STD_I32LE"}],
}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
TIMEOUT = 30


class Client:
    """A client of the server at `url`, of one domain."""

    def __init__(self, url: str, domain: str = FULL) -> None:
        self.url, self.domain = url, domain

    def __call__(self, method: str, path: str, body: Any = None, *, allow: int = 0, **params: Any) -> Json:
        """Send a JSON request; `RuntimeError` unless the status is a success or `allow`."""
        answer = requests.request(
            method,
            self.url + path,
            json=body,
            params={"domain": self.domain, **params},
            auth=("admin", "any"),
            timeout=TIMEOUT,
        )
        if answer.status_code >= 300 and answer.status_code != allow:
            raise RuntimeError(f"{method} {path} of {self.domain}: {answer.status_code} {answer.text}")
        found: Json = answer.json() if answer.content else {}
        return found

    def create(self, title: str, type: Any, shape: Any, layout: Any = None, **more: Any) -> str:
        """Create a dataset that the root group links to; return the path of its requests."""
        properties = more.pop("properties", {}) | ({"layout": layout} if layout else {})
        body = {"type": type, "shape": shape, "creationProperties": properties, **more}
        link = {"id": self("GET", "/")["root"], "name": title}
        return f"/datasets/{self('POST', '/datasets', body | {'link': link})['id']}"


def chunked(*dims: int) -> Json:
    return {"class": "H5D_CHUNKED", "dims": list(dims)}


def sparse(*dims: int, vlen: bool = False) -> Json:
    flags = ["H5D_SPARSE_DATA"] + (["H5D_VL_DATA"] if vlen else [])
    return {"class": "H5D_STRUCT_CHUNK", "dims": list(dims), "flags": flags}


def write(url: str) -> None:
    """Write everything, into an empty store that has the file `FILE`."""
    send = Client(url)
    for folder in ("/home", "/home/admin", HOME + "deeper"):
        Client(url, folder)("PUT", "/", {"folder": True}, allow=409)
    for domain in (FULL, SHARED, HOME + "deeper/gone.h5"):
        Client(url, domain)("PUT", "/", {})
    Client(url, HOME + "deeper/gone.h5")("DELETE", "/")
    rights = {
        "read": True,
        "create": False,
        "update": True,
        "delete": False,
        "readACL": True,
        "updateACL": False,
    }
    Client(url, SHARED)("PUT", "/acls/ben", rights)
    Client(url, SHARED)("PUT", "/acls/default", {"read": True})
    write_objects(send)
    write_dense(send)
    write_sparse(send)
    write_vlen(send)
    write_file_backed(send)
    send("GET", "/", verbose=1)


def write_objects(send: Client) -> None:
    """Write groups, links, attributes and a committed type."""
    root = send("GET", "/")["root"]
    group = send("POST", "/groups", {"link": {"id": root, "name": "g"}})["id"]
    send("POST", "/groups", {"link": {"id": group, "name": "sub"}})
    send("PUT", f"/groups/{root}/links/again", {"id": group})
    send("PUT", f"/groups/{root}/links/soft", {"h5path": "/g/sub"})
    send("PUT", f"/groups/{root}/links/away", {"h5path": "/x", "h5domain": SHARED})
    send("PUT", f"/groups/{root}/links/gone", {"h5path": "/x"})
    send("DELETE", f"/groups/{root}/links/gone")
    kind = send("POST", "/datatypes", {"type": PAIR, "link": {"id": root, "name": "pair"}})["id"]
    made = send.create("of a committed type", kind, [3])
    send("PUT", f"{made}/value", {"value": [[1, "a"], [2, "b"], [3, "c"]]})
    for path in (f"/groups/{root}", f"/groups/{group}", f"/datatypes/{kind}", made):
        send("PUT", f"{path}/attributes/text", {"type": TEXT, "value": "hé"})
        send(
            "PUT", f"{path}/attributes/numbers", {"type": FLOAT, "shape": [3], "value": ["nan", 1.5, "-inf"]}
        )
        send("PUT", f"{path}/attributes/pair", {"type": PAIR, "shape": [1], "value": [[1, "ab"]]})
        send("PUT", f"{path}/attributes/none", {"type": INT, "shape": "H5S_NULL"})
        send("PUT", f"{path}/attributes/gone", {"type": INT, "value": 1})
        send("DELETE", f"{path}/attributes/gone")


def write_dense(send: Client) -> None:
    """Write dense datasets of a fixed element size: filtered, grown, shrunk, never written."""
    numbers = [[row * 40 + column for column in range(40)] for row in range(30)]
    send("PUT", f"{send.create('plain', INT, [30, 40])}/value", {"value": numbers})
    for name in (["gzip"], ["shuffle", "gzip", "fletcher32"], ["lz4"], ["shuffle", "zstd"]):
        made = send.create(", ".join(name), INT, [30, 40], chunked(10, 40), properties={"filters": name})
        send("PUT", f"{made}/value", {"value": numbers})
    send.create("never written", FLOAT, [5, 5], chunked(5, 5), properties={"fillValue": 1.5})
    send.create("null", INT, "H5S_NULL")
    send("PUT", f"{send.create('scalar', FLOAT, [])}/value", {"value": 2.5})
    made = send.create("grown", INT, [5], chunked(5), maxdims=[0], properties={"fillValue": -1})
    send("PUT", f"{made}/value", {"value": list(range(5))})
    send("PUT", f"{made}/shape", {"shape": [9]})
    send("PUT", f"{made}/value", {"append": 2, "value": [7, 8]})
    made = send.create("shrunk", FLOAT, [262144], chunked(131072), maxdims=[0])  # two chunks of 1 MiB
    send("PUT", f"{made}/value", {"start": [0], "stop": [262144], "step": [1000], "value": list(range(263))})
    send("PUT", f"{made}/shape", {"shape": [2500]})
    made = send.create("compound", PAIR, [100], chunked(100))
    send("PUT", f"{made}/value", {"value": [[n, f"n{n}"] for n in range(100)]})
    made = send.create("references", REFERENCE, [2])
    send("PUT", f"{made}/value", {"value": [send("GET", "/")["root"], ""]})


def write_sparse(send: Client) -> None:
    """Write sparse datasets: filtered, an emptied chunk, grown, shrunk, of so many chunks that they get a map."""
    points = [[row, row * 7 % 50] for row in range(50)]
    values = list(range(50))
    filters = [{"class": "H5Z_FILTER_DEFLATE", "level": 4, "section": "H5_SECTION_FIXED"}, "shuffle"]
    for title, found in (("sparse", []), ("sparse filtered", filters), ("sparse unfiltered", ["none"])):
        properties = {"filters": found, "fillValue": -1}
        made = send.create(title, FLOAT, [50, 50], sparse(10, 10), properties=properties)
        send("PUT", f"{made}/value", {"points": points, "value": values})
        send("DELETE", f"{made}/value", select="[0:10,0:10]")
    made = send.create("sparse shrunk", INT, [50, 50], sparse(10, 10), maxdims=[0, 0])
    send("PUT", f"{made}/value", {"points": points, "value": values})
    send("PUT", f"{made}/shape", {"shape": [25, 15]})
    send("PUT", f"{made}/shape", {"shape": [30, 50]})
    made = send.create("sparse compound", PAIR, [50], sparse(10))
    send("PUT", f"{made}/value", {"points": [[3], [49]], "value": [[1, "a"], [2, "b"]]})
    made = send.create("many chunks", INT, [80], sparse(1))
    send("PUT", f"{made}/value", {"value": list(range(80))})
    send("GET", f"{made}/chunks")


def write_vlen(send: Client) -> None:
    """Write datasets of elements of variable length, in each of the three forms."""
    texts, lists = ["", "one", "drei é", "x" * 50], [[], [1], [2, 3], [4, 5, 6]]
    for name, type, values in (("texts", TEXT, texts), ("ragged", RAGGED, lists)):
        send("PUT", f"{send.create(name, type, [4])}/value", {"value": values})
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": [3], "flags": ["H5D_VL_DATA"]}
        send("PUT", f"{send.create(f'structured {name}', type, [4], layout)}/value", {"value": values})
        made = send.create(f"sparse {name}", type, [100], sparse(10, vlen=True))
        send("PUT", f"{made}/value", {"points": [[0], [5], [50], [99]], "value": values})
        send("DELETE", f"{made}/value", select="[50]")


def write_file_backed(send: Client) -> None:
    """Write datasets over a file of the store, one of them by a chunk table."""
    whole = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": 1024, "size": 400}
    send.create("contiguous in a file", INT, [10, 10], whole)
    chunks = {"0": [0, 80], "2": [4096, 80]}
    send.create(
        "chunks in a file",
        INT,
        [50],
        {"class": "H5D_CHUNKED_REF", "file_uri": FILE, "dims": [20], "chunks": chunks},
    )
    table = send.create("table", PLACE, [3])
    send("PUT", f"{table}/value", {"value": [[160, 80], [0, 0], [512, 80]]})
    layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": FILE, "dims": [20]}
    send.create("by a table", INT, [60], layout | {"chunk_table": table.removeprefix("/datasets/")})


def change(url: str) -> None:
    """Change every object that can be changed: each by an attribute, each dataset by a value, each extent that may."""
    for domain in (FULL, SHARED):
        send = Client(url, domain)
        for path in object_paths(send):
            send("PUT", f"{path}/attributes/changed", {"type": INT, "value": 1})
            if path.startswith("/datasets/"):
                _change_dataset(send, path)
        send("PUT", "/acls/carla", {"read": True})
        send("PUT", f"/groups/{send('GET', '/')['root']}/links/new", {"h5path": "/new"})


def _change_dataset(send: Client, path: str) -> None:
    record = send("GET", path)
    dims = record["shape"].get("dims", [])
    if record["shape"]["class"] == "H5S_NULL" or "_REF" in record["creationProperties"]["layout"]["class"]:
        return
    if "maxdims" in record["shape"]:
        send("PUT", f"{path}/shape", {"shape": [dim + 5 for dim in dims]})
        dims = [dim + 5 for dim in dims]
        send("PUT", f"{path}/shape", {"shape": [dims[0] - 1, *dims[1:]]})
    value = send("GET", f"{path}/value", select=_select(dims)) if dims else send("GET", f"{path}/value")
    new = (
        value["value"] if "offset" in str(record["type"]) else _changed(value["value"])
    )  # a table names chunks
    send("PUT", f"{path}/value", {"value": new}, **({"select": _select(dims)} if dims else {}))


def _select(dims: list[int]) -> str:
    """Return the selection of the first two elements along the last dimension."""
    return f"[{','.join('0:1' for _ in dims[1:])}{',' if dims[1:] else ''}0:2]"


def _changed(value: Any) -> Any:
    """Return another value of the same type; an empty sequence stays empty."""
    if isinstance(value, list):
        return [_changed(part) for part in value]
    return value + 1 if isinstance(value, int | float) else "z" + value[1:]


def object_paths(send: Client) -> list[str]:
    """Return the paths of all objects of a domain."""
    paths = [f"/groups/{send('GET', '/')['root']}"]
    for collection in ("groups", "datasets", "datatypes"):
        paths += [f"/{collection}/{id}" for id in sorted(send("GET", f"/{collection}")[collection])]
    return paths


OBJECT = (
    "id",
    "root",
    "type",
    "shape",
    "created",
    "lastModified",
    "creationProperties",
    "attributes",
    "links",
)


def snapshot(url: str) -> Json:
    """Return what a client sees of everything, as JSON."""
    seen: Json = {"folders": {}}
    for folder in (HOME, HOME + "deeper/"):
        domains = Client(url, folder)("GET", "/domains")["domains"]
        seen["folders"][folder] = {one["name"]: (one["class"], one["owner"]) for one in domains}
    for domain in (FULL, SHARED):
        send = Client(url, domain)
        top, acls = send("GET", "/"), send("GET", "/acls")["acls"]
        seen[domain] = {key: top[key] for key in ("root", "owner", "created")} | {"acls": acls}
        seen[domain] |= {path: _object(send, path) for path in object_paths(send)}
    return seen


def _object(send: Client, path: str) -> Json:
    record = send("GET", path, include_attrs=1, include_links=1)
    seen = {key: record[key] for key in OBJECT if key in record}
    if path.startswith("/datasets/") and record["shape"]["class"] != "H5S_NULL":
        seen["value"] = send("GET", f"{path}/value").get("value")
        if "H5D_SPARSE_DATA" in record["creationProperties"]["layout"].get("flags", ()):
            seen["defined"] = send("GET", f"{path}/value", sparse=1)
            seen["chunks"] = send("GET", f"{path}/chunks", order="coord")["chunks"]
            for chunk in seen["chunks"]:
                chunk.pop("etag", None)
    return seen
