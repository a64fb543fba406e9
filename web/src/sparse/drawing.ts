/** Density to pixels: one pixel a bin, which the page enlarges. */

import { type Colour, colourAt, colourOf, rangeOf, type Range, UNDEFINED } from './colours';
import { type Density, type Frame, lengthOf, columnSpan, rowSpan, withSpans } from './density';
import type { Span } from '../api/values';

export type Kind = 'values' | 'density';

export interface Scale {
  range: Range | undefined;
  isLog: boolean;
  colour: (at: number) => Colour;
}

/** What a person chose of the scale of values: without a limit it is that of the values shown. */
export interface ScaleChoice {
  isLog: boolean;
  low?: number | undefined;
  high?: number | undefined;
}

/** Returns how the bins are coloured: by their values or, on a scale of logarithms, by their numbers of elements. */
export function scaleOf(density: Density, kind: Kind, choice: ScaleChoice): Scale {
  const { counts, values } = density;
  if (kind === 'values' && values !== undefined) {
    const { isLog } = choice;
    // A scale of logarithms begins at the least value above 0, as H5Web's does.
    const found = isLog ? (rangeOf(values, values.map((value, at) => (counts[at] && value > 0 ? 1 : 0))) ?? { low: 1, high: 1 }) : rangeOf(values, counts);
    const range = found === undefined ? undefined : limited(found, choice);
    return { range, isLog, colour: (at) => (counts[at] ? colourOf(values[at] ?? NaN, range, isLog) : UNDEFINED) };
  }
  let most = 0;
  for (const count of counts) most = Math.max(most, count);
  const whole = Math.log1p(most) || 1;
  return {
    range: { low: 0, high: most },
    isLog: true,
    colour: (at) => {
      const count = counts[at] ?? 0;
      return count > 0 ? colourAt(Math.log1p(count) / whole) : UNDEFINED;
    },
  };
}

/** Says whether limits can be those of a scale. */
export function isValid({ isLog, low, high }: ScaleChoice): boolean {
  if (isLog && ((low ?? 1) <= 0 || (high ?? 1) <= 0)) return false;
  return low === undefined || high === undefined || low <= high;
}

/** Returns a range with the limits that were chosen; if only one is, and the values are beyond it, it is both. */
function limited(found: Range, choice: ScaleChoice): Range {
  if (!isValid(choice)) return found;
  const low = choice.low ?? Math.min(found.low, choice.high ?? Infinity);
  return { low, high: choice.high ?? Math.max(found.high, low) };
}

/** Draws a density on a canvas of its own size. */
export function draw(canvas: HTMLCanvasElement, density: Density, scale: Scale): void {
  canvas.width = density.width;
  canvas.height = density.height;
  const context = canvas.getContext('2d');
  if (context === null || density.width === 0 || density.height === 0) return;
  const image = context.createImageData(density.width, density.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < pixels.length; at += 1) {
    const [red, green, blue] = scale.colour(at);
    pixels[at] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  context.putImageData(image, 0, 0);
}

/** Draws counts as bars, to the right or upwards. */
export function drawMargin(canvas: HTMLCanvasElement, counts: Float64Array, isColumn: boolean): void {
  const thickness = 40;
  canvas.width = isColumn ? Math.max(1, counts.length) : thickness;
  canvas.height = isColumn ? thickness : Math.max(1, counts.length);
  const context = canvas.getContext('2d');
  if (context === null) return;
  const most = counts.reduce((largest, count) => Math.max(largest, count), 0) || 1;
  context.fillStyle = getComputedStyle(canvas).color;
  counts.forEach((count, at) => {
    const length = Math.ceil((thickness * count) / most);
    if (isColumn) context.fillRect(at, thickness - length, 1, length);
    else context.fillRect(0, at, length, 1);
  });
}

const ONE_PLACE: Span = { start: 0, stop: 1, step: 1 };

/** Returns a span of `length` places around `centre`, inside an extent. */
function fitted(centre: number, length: number, extent: Span = ONE_PLACE): Span {
  const size = Math.min(lengthOf(extent), Math.max(1, Math.round(length)));
  const start = Math.min(extent.stop - size, Math.max(extent.start, Math.round(centre - size / 2)));
  return { start, stop: start + size, step: 1 };
}

/** Returns the frame zoomed by `factor` (below 1: nearer) about a point, given as parts of its height and width. */
export function zoomed(frame: Frame, extent: Span[], factor: number, about: [number, number] = [0.5, 0.5]): Frame {
  const one = (span: Span, whole: Span | undefined, part: number) => {
    const length = lengthOf(span) * factor;
    return fitted(span.start + lengthOf(span) * part + length * (0.5 - part), length, whole);
  };
  const rows = one(rowSpan(frame), extent[frame.rows ?? -1], about[0]);
  return withSpans(frame, rows, one(columnSpan(frame), extent[frame.columns], about[1]));
}

/** Returns the frame moved by parts of its height and width. */
export function moved(frame: Frame, extent: Span[], down: number, right: number): Frame {
  const one = (span: Span, whole: Span | undefined, part: number) => {
    const length = lengthOf(span);
    return fitted(span.start + length / 2 + length * part, length, whole);
  };
  const rows = one(rowSpan(frame), extent[frame.rows ?? -1], down);
  return withSpans(frame, rows, one(columnSpan(frame), extent[frame.columns], right));
}
