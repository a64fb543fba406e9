/** Elements of all types from bytes: packed, and length-prefixed where their size varies (docs/rest.md, "Types"). */

import type { HdfAttribute, HdfType } from './hdf';
import { classOf, decodeNumbers, isDecodable, numberType } from './types';

/** Says whether elements of a type can be decoded: all but references to regions, and numbers that browsers lack. */
export function canDecode(type: HdfType): boolean {
  const number = numberType(type);
  if (number !== undefined) return isDecodable(number);
  if (typeof type === 'string') return false;
  switch (type.class) {
    case 'H5T_STRING':
    case 'H5T_OPAQUE':
      return true;
    case 'H5T_REFERENCE':
      return type.base === 'H5T_STD_REF_OBJ';
    case 'H5T_COMPOUND':
      return (type.fields ?? []).every((field) => canDecode(field.type));
    case 'H5T_ARRAY':
    case 'H5T_VLEN':
      return canDecode(type.base ?? '');
    default:
      return false;
  }
}

/** Returns `count` elements: compounds and sequences as lists, arrays as nested lists, opaque bytes as base64. */
export function decodeElements(bytes: ArrayBuffer, type: HdfType, count: number): unknown[] {
  const reader = new Reader(bytes);
  return Array.from({ length: count }, () => reader.element(type));
}

/** Returns the value of an attribute. What JSON cannot represent, as text that is not UTF-8, the server sends as base64. */
export function attributeValue({ type, shape, value, encoding }: HdfAttribute): unknown {
  if (encoding !== 'base64' || typeof value !== 'string' || !canDecode(type)) return value;
  const dims = shape.dims ?? [];
  const bytes = Uint8Array.from(atob(value), (letter) => letter.charCodeAt(0)).buffer;
  const found = decodeElements(bytes, type, dims.reduce((size, length) => size * length, 1));
  return shape.class === 'H5S_SCALAR' ? found[0] : nested(found, dims);
}

/** The bytes of an object reference: the path of the object, with NUL behind. */
const REFERENCE = 48;
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

class Reader {
  private at = 0;

  constructor(private readonly bytes: ArrayBuffer) {}

  element(type: HdfType): unknown {
    const number = numberType(type);
    if (number !== undefined) return decodeNumbers(this.take(number.size), number)[0];
    if (typeof type === 'string') throw new Error(`Elements of ${type} cannot be shown.`);
    switch (classOf(type)) {
      case 'H5T_STRING':
        return textOf(this.take(type.length === 'H5T_VARIABLE' ? this.length() : (type.length ?? 0)), type.strPad);
      case 'H5T_REFERENCE':
        return textOf(this.take(REFERENCE), undefined);
      case 'H5T_OPAQUE':
        return btoa(String.fromCharCode(...new Uint8Array(this.take(type.size ?? 0))));
      case 'H5T_COMPOUND':
        return (type.fields ?? []).map((field) => this.element(field.type));
      case 'H5T_ARRAY': {
        const dims = type.dims ?? [];
        const size = dims.reduce((product, length) => product * length, 1);
        return nested(Array.from({ length: size }, () => this.element(type.base ?? '')), dims);
      }
      default: {
        const end = this.length() + this.at;
        const found: unknown[] = [];
        while (this.at < end) found.push(this.element(type.base ?? ''));
        return found;
      }
    }
  }

  private length(): number {
    return new DataView(this.take(4)).getUint32(0, true);
  }

  private take(size: number): ArrayBuffer {
    const end = this.at + size;
    if (end > this.bytes.byteLength) throw new Error('The server sent less than the type needs: load this page again.');
    const found = this.bytes.slice(this.at, end);
    this.at = end;
    return found;
  }
}

/** Returns the text without its padding; of bytes that are not UTF-8, those beyond ASCII as Python writes them. */
function textOf(bytes: ArrayBuffer, pad: string | undefined): string {
  const all = new Uint8Array(bytes);
  const first = pad === 'H5T_STR_NULLTERM' ? all.indexOf(0) : -1;
  let end = first < 0 ? all.length : first;
  const filler = pad === 'H5T_STR_SPACEPAD' ? 0x20 : 0;
  while (end > 0 && all[end - 1] === filler) end -= 1;
  const text = all.subarray(0, end);
  try {
    return UTF8.decode(text);
  } catch {
    return Array.from(text, (byte) => (byte < 0x80 ? String.fromCharCode(byte) : `\\x${byte.toString(16)}`)).join('');
  }
}

/** Returns a flat list as nested lists of an extent. */
function nested(flat: unknown[], dims: number[]): unknown[] {
  let found = flat;
  for (const length of dims.slice(1).reverse()) {
    const lines = found;
    found = Array.from({ length: length === 0 ? 0 : lines.length / length }, (_, at) => lines.slice(at * length, (at + 1) * length));
  }
  return found;
}
