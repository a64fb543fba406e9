"""Keep what LCLStreamer sends: `python from_lclstreamer.py tcp://127.0.0.1:12321 http://HOST:5101/home/ann/run.h5`.

LCLStreamer's `HDF5BinarySerializer` packs a batch of events as the bytes of an HDF5 file, with a dataset for each data
block: the events are its first dimension. `BinaryDataStreamingDataHandler` pushes these bytes over ZeroMQ. Here each
block is a dataset that grows: frames a sparse one with the pixels above a threshold, all else a dense one.
"""

import itertools
import sys
from io import BytesIO

import h5py
import hdf5plugin  # noqa: F401 - for batches that are compressed
import numpy as np
import zmq

import hsparse

TILE = 256


def read_batch(message):
    """Return the data blocks of a batch by path."""
    blocks = {}
    with h5py.File(BytesIO(message)) as batch:

        def keep(path, data):
            if isinstance(data, h5py.Dataset):
                blocks[path] = (data.asstr() if h5py.check_string_dtype(data.dtype) else data)[()]

        batch.visititems(keep)
    return blocks


def create(file, path, block):
    shape, most = (0, *block.shape[1:]), (None, *block.shape[1:])
    if block.ndim < 3:
        return file.create_dataset(path, shape, "T" if block.dtype == object else block.dtype, maxshape=most)
    chunks = (16, *(min(TILE, length) for length in block.shape[1:]))
    return file.create_sparse(path, shape, block.dtype, chunks, maxshape=most)


def append(file, message, threshold=0):
    """Append a batch to the datasets of its blocks; frames first, as they take the longest."""
    blocks = read_batch(message)
    for path in sorted(blocks, key=lambda path: -blocks[path].ndim):
        block = blocks[path]
        data = file[path] if path in file else create(file, path, block)
        if isinstance(data, hsparse.SparseDataset):
            places = np.argwhere(block > threshold)
            data.append(places, block[tuple(places.T)], count=len(block))
        else:
            with data.appender() as appender:
                appender.append(block)


def cut_off(file):
    """Remove events of which a receiver that was stopped has stored some blocks only."""
    datasets = [file[path] for path, record in file.records().items() if record["id"].startswith("d-")]
    length = min((len(one) for one in datasets), default=0)
    for one in datasets:
        one.resize((length, *one.shape[1:]), erase=True)


def receive(address, url, batches=None):
    """Receive so many batches, by default without an end."""
    with zmq.Context() as context, context.socket(zmq.PULL) as socket, hsparse.open(url, "a") as file:
        socket.bind(address)
        cut_off(file)
        for _ in itertools.count() if batches is None else range(batches):
            append(file, socket.recv())


if __name__ == "__main__":
    receive(*sys.argv[1:])
