/**
 * Views of n-dimensional arrays, in place of the package `ndarray`, with what H5Web uses of its interface.
 *
 * That package compiles a class for each rank from text, which the page's Content-Security-Policy does not allow.
 */

interface Data {
  readonly length: number;
  [at: number]: unknown;
}

const DTYPES: Record<string, string> = { Uint8ClampedArray: 'uint8_clamped', BigInt64Array: 'bigint64', BigUint64Array: 'biguint64' };

class NdArray {
  constructor(
    readonly data: Data,
    readonly shape: number[],
    readonly stride: number[],
    readonly offset: number,
  ) {}

  get dtype(): string {
    if (Array.isArray(this.data)) return 'array';
    const name = this.data.constructor.name;
    return DTYPES[name] ?? name.replace('Array', '').toLowerCase();
  }

  get dimension(): number {
    return this.shape.length;
  }

  get size(): number {
    return this.shape.reduce((product, length) => product * length, 1);
  }

  /** The dimensions, that of the smallest steps in memory first. */
  get order(): number[] {
    const size = (dim: number) => Math.abs(this.stride[dim] ?? 0);
    return this.shape.map((_, dim) => dim).sort((a, b) => size(a) - size(b));
  }

  index(...place: number[]): number {
    let at = this.offset;
    for (let dim = 0; dim < this.stride.length; dim += 1) at += (this.stride[dim] ?? 0) * (place[dim] ?? 0);
    return at;
  }

  get(...place: number[]): unknown {
    return this.data[this.index(...place)];
  }

  /** Sets the element at a place; the value comes last. */
  set(...placeAndValue: unknown[]): unknown {
    const rank = this.stride.length;
    return (this.data[this.index(...(placeAndValue.slice(0, rank) as number[]))] = placeAndValue[rank]);
  }

  /** Returns a view without the places from `ends` on. */
  hi(...ends: (number | null | undefined)[]): NdArray {
    const shape = this.shape.map((length, dim) => (isPlace(ends[dim]) ? ends[dim] : length));
    return new NdArray(this.data, shape, this.stride, this.offset);
  }

  /** Returns a view without the places before `starts`. */
  lo(...starts: (number | null | undefined)[]): NdArray {
    const first = this.shape.map((_, dim) => (isPlace(starts[dim]) ? starts[dim] : 0));
    const shape = this.shape.map((length, dim) => length - (first[dim] ?? 0));
    return new NdArray(this.data, shape, this.stride, this.index(...first));
  }

  /** Returns a view of each n-th place; of a negative step the last place comes first. */
  step(...steps: (number | null | undefined)[]): NdArray {
    let { offset } = this;
    const chosen = this.shape.map((_, dim) => steps[dim] ?? 1);
    const shape = this.shape.map((length, dim) => Math.ceil(length / Math.abs(chosen[dim] ?? 1)));
    const stride = this.stride.map((one, dim) => {
      const step = chosen[dim] ?? 1;
      if (step < 0) offset += one * ((this.shape[dim] ?? 1) - 1);
      return one * step;
    });
    return new NdArray(this.data, shape, stride, offset);
  }

  transpose(...dims: number[]): NdArray {
    const order = this.shape.map((_, dim) => dims[dim] ?? dim);
    const of = (values: number[]) => order.map((dim) => values[dim] ?? 0);
    return new NdArray(this.data, of(this.shape), of(this.stride), this.offset);
  }

  /** Returns a view of the places with these indices; a dimension with an index is left out. */
  pick(...places: (number | null | undefined)[]): NdArray {
    const offset = this.index(...this.shape.map((_, dim) => (isPlace(places[dim]) ? places[dim] : 0)));
    const kept = this.shape.map((_, dim) => dim).filter((dim) => !isPlace(places[dim]));
    const of = (values: number[]) => kept.map((dim) => values[dim] ?? 0);
    return new NdArray(this.data, of(this.shape), of(this.stride), offset);
  }
}

function isPlace(value: number | null | undefined): value is number {
  return typeof value === 'number' && value >= 0;
}

function rowMajor(shape: number[]): number[] {
  const stride: number[] = [];
  let step = 1;
  for (const length of [...shape].reverse()) {
    stride.unshift(step);
    step *= length;
  }
  return stride;
}

/** Returns a view of data, by default of all in one dimension, in row-major order. */
export default function ndarray(data: Data, shape = [data.length], stride = rowMajor(shape), offset = 0): NdArray {
  return new NdArray(data, shape, stride, offset);
}

export type { NdArray };
