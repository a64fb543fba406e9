/** A dense dataset: the part that is selected, drawn by H5Web. */

import { lazy, Suspense } from 'react';
import { type Address, goTo } from '../address';
import { type Domain, dimsOf, type HdfObject } from '../api/hdf';
import { formatSelect, parseSelect, type Span, spanLength } from '../api/values';
import { SelectionField, SelectionNotice } from './SelectionField';

const H5WebView = lazy(() => import('./H5WebView'));

/** Elements of the two last dimensions, or of the only one, that are drawn without a step. */
const MAX_DRAWN = 1 << 21;

/** Returns the whole extent, with equal steps in the last two dimensions if they have too many elements. */
export function defaultWindow(dims: number[]): Span[] {
  const last = dims.slice(-2);
  const size = last.reduce((product, length) => product * length, 1);
  const step = Math.max(1, Math.ceil((size / MAX_DRAWN) ** (1 / Math.max(1, last.length))));
  return dims.map((stop, dim) => ({ start: 0, stop, step: dim < dims.length - 2 ? 1 : Math.min(step, Math.max(1, stop)) }));
}

interface Props {
  domain: Domain;
  object: HdfObject;
  address: Address;
}

export function DenseView({ domain, object, address }: Props) {
  const dims = dimsOf(object);
  const window = parseSelect(address.select, dims) ?? defaultWindow(dims);
  const steps = window.some((span) => span.step > 1);
  if (object.shape?.class === 'H5S_NULL') return <p className="notice">A null dataspace: the dataset has no values.</p>;
  if (dims.some((length) => length === 0)) return <p className="notice">The dataset has no elements yet.</p>;
  return (
    <>
      {dims.length > 0 && (
        <SelectionField
          key={formatSelect(window)}
          text={formatSelect(window)}
          dims={dims}
          onSelect={(select) => goTo({ ...address, select })}
        />
      )}
      <SelectionNotice select={address.select} dims={dims} />
      {steps && (
        <p className="notice" role="status">
          {window.map(spanLength).join(' × ')} of {dims.join(' × ')} elements are shown: every n-th, by the steps above.
        </p>
      )}
      <Suspense fallback={<p className="notice">Loading the displays…</p>}>
        <H5WebView domain={domain} path={address.path} window={dims.length > 0 ? window : undefined} select={address.select} />
      </Suspense>
    </>
  );
}
