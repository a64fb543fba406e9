/** The colours of pictures: viridis for values, and colours of their own for what is no number. */

export type Colour = readonly [number, number, number];

/** No element was written there. It is no colour of the scale, so it is never taken for a value. */
export const UNDEFINED: Colour = [200, 200, 206];
/** An element was written, and it is not a number. */
export const NOT_A_NUMBER: Colour = [220, 20, 60];

/** Viridis (matplotlib, CC0) at eleven places, from 0 to 1. */
export const SCALE: readonly Colour[] = [
  [68, 1, 84],
  [72, 36, 117],
  [65, 68, 135],
  [53, 95, 141],
  [42, 120, 142],
  [33, 145, 140],
  [34, 168, 132],
  [68, 191, 112],
  [122, 209, 81],
  [189, 223, 38],
  [253, 231, 37],
];

/** The colours of categories, told apart by people of any sight (Okabe and Ito), then by lightness. */
export const CATEGORIES: readonly Colour[] = [
  [0, 114, 178],
  [230, 159, 0],
  [0, 158, 115],
  [204, 121, 167],
  [213, 94, 0],
  [86, 180, 233],
  [140, 120, 20],
  [90, 60, 140],
  [120, 120, 120],
  [60, 150, 60],
  [160, 60, 60],
  [40, 60, 110],
];

/** Returns the colour at `part` of the scale, 0 to 1. */
export function colourAt(part: number): Colour {
  const at = Math.min(1, Math.max(0, part)) * (SCALE.length - 1);
  const below = Math.min(Math.floor(at), SCALE.length - 2);
  const low = SCALE[below] ?? UNDEFINED;
  const high = SCALE[below + 1] ?? UNDEFINED;
  const mix = (channel: 0 | 1 | 2) => Math.round(low[channel] + (at - below) * (high[channel] - low[channel]));
  return [mix(0), mix(1), mix(2)];
}

export interface Range {
  low: number;
  high: number;
}

/** Returns the least and the largest of the finite values that are defined. */
export function rangeOf(values: ArrayLike<number>, counts?: ArrayLike<number>): Range | undefined {
  let low = Infinity;
  let high = -Infinity;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] ?? NaN;
    if ((counts !== undefined && !counts[at]) || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? { low, high } : undefined;
}

/** Returns the colour of a defined value in a range, on a scale of logarithms if `isLog`; then the range is above 0. */
export function colourOf(value: number, range: Range | undefined, isLog = false): Colour {
  if (Number.isNaN(value) || range === undefined) return NOT_A_NUMBER;
  if (range.high <= range.low) return colourAt(value < range.low ? 0 : value > range.high ? 1 : 0.5);
  if (!isLog) return colourAt((value - range.low) / (range.high - range.low));
  return colourAt(value <= 0 ? 0 : Math.log(value / range.low) / Math.log(range.high / range.low));
}

export function css(colour: Colour): string {
  return `rgb(${colour.join(', ')})`;
}
