"""Keep bluesky's runs: `RE.subscribe(Writer(hsparse.open("http://HOST:5101/home/ann/runs.h5", "a")))`.

A run is a group with the name of its uid, its start document an attribute. A stream (`primary`, `baseline`) is a group
in it, and each data key a dataset that grows by a row with each event: of images a sparse one, without zeros.
"""

import json

import numpy as np
from event_model import DocumentRouter

TYPES = {"number": "<f8", "array": "<f8", "integer": "<i8", "boolean": "?", "string": "T"}
"""What a data key holds that does not say it by `dtype_numpy`."""
TILE = 256


def create(group, key, about):
    shape = tuple(about["shape"])
    dtype, most = about.get("dtype_numpy") or TYPES[about["dtype"]], (None, *shape)
    if len(shape) < 2:
        made = group.create_dataset(key, (0, *shape), dtype, maxshape=most)
    else:
        chunks = (16, *(min(TILE, length) for length in shape))
        made = group.create_sparse(key, (0, *shape), dtype, chunks, maxshape=most)
    made.attrs.update({name: about[name] for name in ("source", "units", "object_name") if about.get(name)})
    return made


class Writer(DocumentRouter):
    """A callback that stores the documents of one run after the other in a file."""

    def __init__(self, file):
        super().__init__()
        self.file = file

    def start(self, doc):
        self.streams = {}
        self.run = self.file.create_group(doc["uid"], {"start": json.dumps(doc), "time": doc["time"]})

    def descriptor(self, doc):
        if any("external" in about for about in doc["data_keys"].values()):
            raise ValueError(
                f"The stream {doc['name']} has data in other files: import these by hsparse import."
            )
        group = self.run.require_group(doc["name"])
        keys = {"time": {"dtype": "number", "shape": []}, **doc["data_keys"]}
        self.streams[doc["uid"]] = {
            key: group[key] if key in group else create(group, key, about) for key, about in keys.items()
        }

    def event_page(self, doc):
        for key, dataset in self.streams[doc["descriptor"]].items():
            rows = np.asarray(doc["time"] if key == "time" else doc["data"][key])
            with dataset.appender(drop_fill=dataset.ndim > 2) as appender:
                appender.append(rows if rows.dtype.kind == "U" else rows.astype(dataset.dtype))

    def stop(self, doc):
        self.run.attrs.update(stop=json.dumps(doc), exit_status=doc["exit_status"])
