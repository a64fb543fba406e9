"""HDF5 file bytes, without I/O.

The modules of this folder are the structures of the HDF5 file format, under the headings of its specification
(H5.format.html): `superblock` (II), `object_header` (IV.A.1), `btree_v2` (III.A.2), `heaps` (III.D, III.E),
`fractal_heap` (III.G), `shared_messages` (III.I); `messages` are the object header messages (IV.A.2),
`chunk_indexes` the indexes of chunked datasets (VII).

`parse` puts the objects of a file together from these structures. `plan` lays out the file of a domain: all sizes
and addresses first, bytes on request.

`decode_...` and `encode_...` convert the bytes of one structure. `read_...` and `parse_...` are readers, generators
that ask for byte ranges (`reads`). `plan_...` returns pieces whose sizes are known before their addresses.
"""
