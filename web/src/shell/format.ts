/** Numbers, sizes and times as text. */

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

/** A value as text, cut where it is long; names and values may hold any characters. */
export function formatValue(value: unknown, most = 400): string {
  if (typeof value === 'number' || typeof value === 'bigint') return formatExact(value);
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return text.length > most ? `${text.slice(0, most)}… (${formatCount(text.length)} characters)` : text;
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
