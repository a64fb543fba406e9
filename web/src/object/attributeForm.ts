/** Attributes as text that is typed: which can be, what their text is, and what a text stands for, to the last digit. */

import type { HdfAttribute, HdfType } from '../api/hdf';
import { classOf, isBoolean, isDecodable, numberType, typeText } from '../api/types';
import { formatElement } from '../shell/format';
import { hasHidden, visible } from './ExactText';

/** The most elements of a list that are typed. */
const MOST = 1000;

export interface Form {
  type: HdfType;
  isList: boolean;
  /** Whether text is written as in JSON: a list, or what has characters that a field would lose. */
  isJson: boolean;
}

/** The types that a new attribute can have, by what they are called. */
export const NEW_TYPES: Record<string, HdfType> = {
  text: { class: 'H5T_STRING', charSet: 'H5T_CSET_UTF8', length: 'H5T_VARIABLE', strPad: 'H5T_STR_NULLTERM' },
  integer: 'H5T_STD_I64LE',
  float: 'H5T_IEEE_F64LE',
  'true or false': { class: 'H5T_ENUM', base: 'H5T_STD_I8LE', mapping: { FALSE: 0, TRUE: 1 } },
};

const REASONS: Record<string, string> = {
  H5T_COMPOUND: 'it is a compound',
  H5T_VLEN: 'it has sequences',
  H5T_ARRAY: 'its elements are arrays',
  H5T_REFERENCE: 'it has references',
  H5T_ENUM: 'it is an enumeration',
  H5T_OPAQUE: 'it has bytes without a meaning',
  H5T_BITFIELD: 'it is a bit field',
};

/** Returns how an attribute with its value is typed, or why it is not. */
export function formOf({ type, shape, encoding }: HdfAttribute, value: unknown): Form | string {
  const dims = shape.dims ?? [];
  if (shape.class === 'H5S_NULL') return 'it has no value';
  if (dims.length > 1) return `it has ${dims.length} dimensions`;
  if ((dims[0] ?? 0) > MOST) return `it has more than ${MOST} elements`;
  const isList = shape.class === 'H5S_SIMPLE';
  const kind = classOf(type);
  if (kind === 'H5T_STRING') {
    if (encoding === 'base64') return 'its bytes are not UTF-8';
    return { type, isList, isJson: isList || (typeof value === 'string' && hasHidden(value)) };
  }
  const number = numberType(type);
  const isNumber = number !== undefined && isDecodable(number) && ['H5T_INTEGER', 'H5T_FLOAT'].includes(kind);
  return isNumber || isBoolean(type) ? { type, isList, isJson: false } : (REASONS[kind] ?? `this page cannot write ${typeText(type)}`);
}

/** Returns the text of a value. */
export function textOf(value: unknown, { type, isList, isJson }: Form): string {
  if (isJson) return visible(JSON.stringify(value ?? []));
  if (value === null || value === undefined) return '';
  return isList ? (value as unknown[]).map((one) => formatElement(one, type)).join(', ') : formatElement(value, type);
}

/** What to write, in a sentence. */
export function hintOf({ type, isList, isJson }: Form): string {
  if (isJson) return isList ? 'A list of texts as in JSON: ["one", "two"].' : 'A text as in JSON, in quotes: "line\\r\\nline". It has characters that a field would lose.';
  if (classOf(type) === 'H5T_STRING') return '';
  return `${isList ? 'Numbers or truth values with commas between them: ' : ''}${typeText(type)}.`;
}

/** Returns what a text stands for, as the server takes it; raises an `Error` that says what to write instead. */
export function parseText(text: string, form: Form): unknown {
  const { type, isList } = form;
  if (classOf(type) === 'H5T_STRING') return parseTexts(text, form);
  const parse = isBoolean(type) ? parseBoolean : (token: string) => parseNumber(token, type);
  if (!isList) return parse(text.trim());
  return text.split(/[\s,]+/).filter((token) => token !== '').map(parse);
}

function parseTexts(text: string, { type, isList, isJson }: Form): unknown {
  let value: unknown = text;
  if (isJson) {
    try {
      value = JSON.parse(text) as unknown;
    } catch {
      value = undefined;
    }
    const fits = isList ? Array.isArray(value) && value.every((one) => typeof one === 'string') : typeof value === 'string';
    if (!fits) throw new Error(isList ? 'This is no list of texts: write it as in JSON, ["one", "two"].' : 'This is no text in JSON: write it in quotes, "so".');
  }
  for (const one of isList ? (value as string[]) : [value as string]) checkText(one, type);
  return value;
}

/** Raises an `Error` for a text that would not be kept whole. */
function checkText(text: string, type: HdfType): void {
  if (typeof type === 'string') return;
  if (type.charSet === 'H5T_CSET_ASCII' && /[^\u0000-\u007f]/.test(text)) {
    throw new Error('The type of this attribute has ASCII alone: leave out other letters, or delete it and make it anew as text.');
  }
  if (typeof type.length !== 'number') return;
  const most = type.strPad === 'H5T_STR_NULLTERM' ? type.length - 1 : type.length;
  const size = new TextEncoder().encode(text).length;
  if (size > most) throw new Error(`The text has ${size} bytes, and the type of this attribute ${most}: write less, or delete it and make it anew as text.`);
}

function parseBoolean(token: string): boolean {
  if (token !== 'true' && token !== 'false') throw new Error(`${JSON.stringify(token)} is no truth value: write true or false.`);
  return token === 'true';
}

function parseNumber(token: string, type: HdfType): unknown {
  const number = numberType(type);
  if (number === undefined) throw new Error('The type has no numbers.');
  return number.kind === 'f' ? parseFloating(token, number.size, typeText(type)) : parseInteger(token, number.kind === 'i', 8n * BigInt(number.size), typeText(type));
}

function parseInteger(token: string, isSigned: boolean, bits: bigint, name: string): bigint {
  if (!/^[+-]?\d+$/.test(token)) throw new Error(`${JSON.stringify(token)} is no integer: write digits alone, as in 42.`);
  const value = BigInt(token.replace(/^\+/, ''));
  const [least, most] = isSigned ? [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n] : [0n, (1n << bits) - 1n];
  if (value < least || value > most) throw new Error(`${token} is not in ${name}: write a number from ${least} to ${most}.`);
  return value;
}

const NAMED: Record<string, string> = { nan: 'nan', inf: 'inf', infinity: 'inf' };
const GREATEST: Record<number, number> = { 2: 65504, 4: 3.4028234663852886e38, 8: Number.MAX_VALUE };

function parseFloating(token: string, size: number, name: string): unknown {
  const [, sign, rest] = /^([+-]?)(.*)$/s.exec(token) ?? [];
  const named = NAMED[(rest ?? '').toLowerCase()];
  if (named !== undefined) return sign === '-' && named === 'inf' ? '-inf' : named;
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(token)) throw new Error(`${JSON.stringify(token)} is no number: write one as in -1.5e3, or nan, inf, -inf.`);
  const value = Number(token);
  const most = GREATEST[size] ?? Number.MAX_VALUE;
  if (Math.abs(value) > most) throw new Error(`${token} is too large for ${name}: write a number up to ${most}, or inf.`);
  const isZero = (size === 4 ? Math.fround(value) : size === 2 ? Math.round(value * 2 ** 24) : value) === 0;
  if (isZero && /[1-9]/.test(token.split(/e/i)[0] ?? '')) throw new Error(`${token} is too small for ${name}, which would have 0 for it: write 0, or a greater number.`);
  return value;
}
