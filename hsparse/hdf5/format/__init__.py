"""The bytes of HDF5 files: parse and generate them, without I/O.

The modules of this folder implement the structures of the HDF5 file format, named after the headings of its
specification (H5.format.html): `superblock` (II), `object_header` (IV.A.1), `btree_v2` (III.A.2), `fractal_heap`
(III.D and III.G), `global_heap` (III.E). `messages` implements the object header messages (IV.A.2), and `chunk_indexes`
the indexes of chunked datasets (VII).

`parse` builds the objects of a file from these structures. `plan` lays out the file of a domain: it computes all
sizes and addresses first, and encodes bytes on request.

`decode_...` and `encode_...` convert the bytes of one structure. `read_...` and `parse_...` are readers: generators
that yield the byte ranges that they need (`Reads`). `plan_...` returns structures with known sizes, without addresses.
"""
