/** Elements, numbers, sizes and times as text; names and values may hold any characters. */

import type { HdfType } from '../api/hdf';
import { isBoolean, isComplex, memberMapping, numberType } from '../api/types';

const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function formatBytes(count: number): string {
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toPrecision(3)} ${UNITS[unit]}`;
}

export function formatTime(seconds: number | undefined): string {
  if (!seconds) return '';
  return new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ');
}

export function formatCount(count: number): string {
  return count.toLocaleString('en');
}

/** A text, cut where it is long. */
export function cut(text: string, most = 400): string {
  return text.length > most ? `${text.slice(0, most)}… (${formatCount(text.length)} characters)` : text;
}

/** An element of a type as text, or nested lists of elements, of `rank` levels: `{x: 1, y: [2, 3]}`. */
export function formatElement(value: unknown, type: HdfType, rank = 0): string {
  return typeof value === 'string' ? value : formatPart(value, type, rank);
}

function formatPart(value: unknown, type: HdfType, rank: number): string {
  if (rank > 0 && Array.isArray(value)) return `[${value.map((one) => formatPart(one, type, rank - 1)).join(', ')}]`;
  if (typeof value === 'bigint') return formatExact(value);
  if (typeof value === 'number') return enumerated(value, type) ?? formatExact(value, numberType(type)?.kind === 'f' && numberType(type)?.size === 4);
  if (!Array.isArray(value) || typeof type === 'string') return JSON.stringify(value) ?? '';
  if (isComplex(type)) return `${formatPart(value[0], '', 0)}${Number(value[1]) < 0 || Object.is(value[1], -0) ? '' : '+'}${formatPart(value[1], '', 0)}j`;
  if (type.class === 'H5T_COMPOUND') return `{${(type.fields ?? []).map((field, at) => `${field.name}: ${formatPart(value[at], field.type, 0)}`).join(', ')}}`;
  return formatPart(value, type.base ?? '', type.class === 'H5T_ARRAY' ? (type.dims ?? []).length : 1);
}

function enumerated(value: number, type: HdfType): string | undefined {
  if (isBoolean(type)) return value === 0 ? 'false' : 'true';
  if (typeof type === 'string' || type.class !== 'H5T_ENUM') return undefined;
  return Object.entries(memberMapping(type)).find(([, one]) => one === value)?.[0];
}

/** A number with the digits that name it among those of its type: `isSingle` says that it is a float of 32 bits. */
export function formatExact(value: number | bigint, isSingle = false): string {
  if (Object.is(value, -0)) return '-0';
  if (isSingle && typeof value === 'number' && Number.isFinite(value)) {
    for (let digits = 6; digits <= 9; digits += 1) {
      const near = Number(value.toPrecision(digits));
      if (Math.fround(near) === value) return String(near);
    }
  }
  return String(value);
}

/** A number for a look at it, cut to seven digits. */
export function formatNumber(value: number): string {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(7)));
}
