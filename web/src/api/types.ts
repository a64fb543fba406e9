/** Types: in words for people, as H5Web has them, and as typed arrays of bytes in the file's order. */

import type { HdfType, HdfTypeObject } from './hdf';

export interface NumberType {
  kind: 'i' | 'u' | 'f';
  size: number;
  bigEndian: boolean;
}

const NUMBER = /^H5T_(STD|IEEE)_([IUFB])(\d+)(LE|BE)$/;

/** The class of a type, also of predefined ones, which are named by text. */
export function classOf(type: HdfType): string {
  if (typeof type !== 'string') return type.class;
  return NUMBER.exec(type)?.[2] === 'F' ? 'H5T_FLOAT' : 'H5T_INTEGER';
}

/** The number type of a type, or of an enumeration's base; undefined if its elements are no numbers. */
export function numberType(type: HdfType): NumberType | undefined {
  const name = typeof type === 'string' ? type : type.base;
  const kinds = ['H5T_INTEGER', 'H5T_FLOAT', 'H5T_ENUM', 'H5T_BITFIELD'];
  if (typeof type !== 'string' && !kinds.includes(type.class)) return undefined;
  if (typeof name === 'object') return numberType(name);
  const match = NUMBER.exec(name ?? '');
  if (match === null) return undefined;
  const kind = match[2] === 'F' ? 'f' : match[2] === 'I' ? 'i' : 'u';
  return { kind, size: Number(match[3]) / 8, bigEndian: match[4] === 'BE' };
}

export function isBoolean(type: HdfType): boolean {
  const names = typeof type === 'string' ? [] : memberNames(type);
  return names.length === 2 && names.includes('FALSE') && names.includes('TRUE');
}

export function isComplex(type: HdfType): boolean {
  if (typeof type === 'string' || type.class !== 'H5T_COMPOUND') return false;
  const fields = type.fields ?? [];
  return fields.length === 2 && fields[0]?.name === 'r' && fields[1]?.name === 'i';
}

export function memberNames(type: HdfTypeObject): string[] {
  return Object.keys(memberMapping(type));
}

/** The values of an enumeration by name; `members` is the newer form. */
export function memberMapping(type: HdfTypeObject): Record<string, number> {
  return type.mapping ?? Object.fromEntries((type.members ?? []).map(({ name, value }) => [name, value]));
}

/** The name of a type as numpy's users write it. */
export function typeText(type: HdfType): string {
  const number = numberType(type);
  if (isBoolean(type)) return 'bool';
  if (isComplex(type)) return 'complex';
  if (typeof type === 'string' || (number !== undefined && type.class !== 'H5T_ENUM')) {
    if (number === undefined) return String(type);
    const kind = { i: 'int', u: 'uint', f: 'float' }[number.kind];
    return `${kind}${number.size * 8}${number.bigEndian ? ' (big-endian)' : ''}`;
  }
  switch (type.class) {
    case 'H5T_STRING':
      return type.length === 'H5T_VARIABLE' ? 'string' : `string of ${type.length} bytes`;
    case 'H5T_COMPOUND':
      return `{${(type.fields ?? []).map((field) => `${field.name}: ${typeText(field.type)}`).join(', ')}}`;
    case 'H5T_ARRAY':
      return `${typeText(type.base ?? '')}[${(type.dims ?? []).join(', ')}]`;
    case 'H5T_VLEN':
      return `sequence of ${typeText(type.base ?? '')}`;
    case 'H5T_ENUM':
      return `enumeration of ${memberNames(type).length} names`;
    default:
      return type.class.replace('H5T_', '').toLowerCase();
  }
}

export type NumberArray =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | Float32Array
  | Float64Array;

type ArrayOf = new (buffer: ArrayBuffer) => NumberArray;

const ARRAYS: Record<string, ArrayOf> = {
  i1: Int8Array,
  u1: Uint8Array,
  i2: Int16Array,
  u2: Uint16Array,
  i4: Int32Array,
  u4: Uint32Array,
  i8: BigInt64Array,
  u8: BigUint64Array,
  f4: Float32Array,
  f8: Float64Array,
};

/** Says whether numbers of a type can be decoded. */
export function isDecodable(type: NumberType): boolean {
  return isHalf(type) || `${type.kind}${type.size}` in ARRAYS;
}

function isHalf(type: NumberType): boolean {
  return type.kind === 'f' && type.size === 2;
}

/** Turns numbers that are big-endian in place, and returns them. */
export function littleEndian(bytes: ArrayBuffer, type: NumberType): ArrayBuffer {
  if (!type.bigEndian || type.size === 1) return bytes;
  const all = new Uint8Array(bytes);
  for (let at = 0; at < all.length; at += type.size) all.subarray(at, at + type.size).reverse();
  return bytes;
}

/** Returns the numbers in bytes as the server sends them, 16-bit floats with 32 bits; bytes in the other order are turned in place. */
export function decodeNumbers(bytes: ArrayBuffer, type: NumberType): NumberArray {
  const ordered = littleEndian(bytes, type);
  if (isHalf(type)) return Float32Array.from(new Uint16Array(ordered), decodeHalf);
  const make = ARRAYS[`${type.kind}${type.size}`];
  if (make === undefined) throw new Error(`No arrays of ${type.kind}${type.size} in this browser.`);
  return new make(ordered);
}

/** Returns the number of 16 bits that a float has (IEEE 754, binary16). */
function decodeHalf(bits: number): number {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}
