/** An image as TIFF 6.0: grey, uncompressed, in one strip, with numbers of the dataset's type. */

import type { HdfObject } from '../api/hdf';
import { numberType } from '../api/types';
import { type Span, spanLength } from '../api/values';

const SHORT = 3;
const LONG = 4;
const FORMATS = { u: 1, i: 2, f: 3 };
const HEADER = 8;
/** The largest image: positions in a file have 32 bits. */
const MAX_BYTES = 2 ** 32 - 4096;

/** Returns the parts of a file with the values of a selection, little-endian: rows and columns are those dimensions with more than one place. */
export function tiff(object: HdfObject, spans: Span[], values: ArrayBuffer): BlobPart[] {
  const type = numberType(object.type ?? '');
  const lengths = spans.map(spanLength);
  const wide = lengths.filter((length) => length !== 1);
  if (type === undefined || wide.length > 2) throw new Error('An image has two dimensions: select one place in the others.');
  if (values.byteLength > MAX_BYTES || values.byteLength === 0) throw new Error('An image has 1 byte to 4 GB: select another part.');
  const [height, width] = wide.length === 2 ? wide : [1, wide[0] ?? 1];
  const entries: [tag: number, kind: number, value: number][] = [
    [256, LONG, width ?? 1],
    [257, LONG, height ?? 1],
    [258, SHORT, type.size * 8], // bits of a sample
    [259, SHORT, 1], // no compression
    [262, SHORT, 1], // black is zero
    [273, LONG, 0], // where the strip begins: set below
    [277, SHORT, 1], // samples of a pixel
    [278, LONG, height ?? 1], // rows of the strip
    [279, LONG, values.byteLength],
    [339, SHORT, FORMATS[type.kind]],
  ];
  const size = Math.ceil((HEADER + 2 + 12 * entries.length + 4) / 8) * 8;
  const head = new DataView(new ArrayBuffer(size));
  head.setUint32(0, 0x002a4949, true); // little-endian, 42
  head.setUint32(4, HEADER, true);
  head.setUint16(HEADER, entries.length, true);
  entries.forEach(([tag, kind, value], at) => {
    const place = HEADER + 2 + 12 * at;
    head.setUint16(place, tag, true);
    head.setUint16(place + 2, kind, true);
    head.setUint32(place + 4, 1, true);
    head.setUint32(place + 8, tag === 273 ? size : value, true);
  });
  return [head.buffer, values];
}
