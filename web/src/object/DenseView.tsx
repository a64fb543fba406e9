/** A dense dataset: the part that is selected, drawn by H5Web. */

import { lazy, Suspense } from 'react';
import { type Address, goTo } from '../address';
import { type Domain, dimsOf, type HdfObject } from '../api/hdf';
import { extentOf, formatSelect, parseSelect, type Span, spanLength } from '../api/values';
import { SelectionField, SelectionNotice } from './SelectionField';

const H5WebView = lazy(() => import('./H5WebView'));

/** Elements of the two last dimensions, or of the only one, that are drawn without a step. */
const MAX_DRAWN = 1 << 21;

/** Returns the whole extent, with equal steps in the last two dimensions if they have too many elements. */
export function defaultWindow(extent: Span[]): Span[] {
  const last = extent.slice(-2);
  const size = last.reduce((product, whole) => product * spanLength(whole), 1);
  const step = Math.max(1, Math.ceil((size / MAX_DRAWN) ** (1 / Math.max(1, last.length))));
  return extent.map((whole, dim) => ({ ...whole, step: dim < extent.length - 2 ? 1 : Math.min(step, Math.max(1, spanLength(whole))) }));
}

interface Props {
  domain: Domain;
  object: HdfObject;
  address: Address;
}

export function DenseView({ domain, object, address }: Props) {
  const dims = dimsOf(object);
  const extent = extentOf(object);
  const window = parseSelect(address.select, extent) ?? defaultWindow(extent);
  const steps = window.some((span) => span.step > 1);
  if (object.shape?.class === 'H5S_NULL') return <p className="notice">A null dataspace: the dataset has no values.</p>;
  if (dims.some((length) => length === 0)) return <p className="notice">The dataset has no elements yet.</p>;
  return (
    <>
      {dims.length > 0 && (
        <SelectionField
          key={formatSelect(window)}
          text={formatSelect(window)}
          extent={extent}
          onSelect={(select) => goTo({ ...address, select })}
        />
      )}
      <SelectionNotice select={address.select} extent={extent} />
      {steps && (
        <p className="notice" role="status">
          {window.map(spanLength).join(' × ')} of {dims.join(' × ')} elements are shown: every n-th, by the steps above.
        </p>
      )}
      {object.shape?.lower !== undefined && <p className="notice">The display counts from 0 at the first place of the selection.</p>}
      <Suspense fallback={<p className="notice">Loading the displays…</p>}>
        <H5WebView domain={domain} path={address.path} window={dims.length > 0 ? window : undefined} select={address.select} />
      </Suspense>
    </>
  );
}
