/** JSON with all integers: a `bigint` is written as a number, and -0 with its sign. */

export function toJson(value: unknown): string {
  if (typeof value === 'bigint') return String(value);
  if (Object.is(value, -0)) return '-0.0';
  if (Array.isArray(value)) return `[${value.map(toJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const given = Object.entries(value).filter(([, part]) => part !== undefined);
  return `{${given.map(([key, part]) => `${JSON.stringify(key)}:${toJson(part)}`).join(',')}}`;
}
