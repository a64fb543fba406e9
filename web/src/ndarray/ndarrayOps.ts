/** The one operation of the package `ndarray-ops` that H5Web uses; the package compiles it from text. */

import type { NdArray } from './ndarray';

/** Copies the elements of `source` to `target`, which has the same shape. */
export function assign(target: NdArray, source: NdArray): NdArray {
  const { shape } = target;
  const visit = (dim: number, to: number, from: number) => {
    if (dim === shape.length) {
      target.data[to] = source.data[from];
      return;
    }
    const [step, stride] = [target.stride[dim] ?? 0, source.stride[dim] ?? 0];
    for (let at = 0; at < (shape[dim] ?? 0); at += 1) visit(dim + 1, to + at * step, from + at * stride);
  };
  visit(0, target.offset, source.offset);
  return target;
}
