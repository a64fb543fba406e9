/** A dense dataset: the part that is selected, drawn by H5Web. */

import { lazy, Suspense, useState } from 'react';
import { type Address, goTo } from '../address';
import { type Domain, dimsOf, type HdfObject } from '../api/hdf';
import { formatSelect, parseSelect, type Span, spanLength } from '../api/values';
import { ErrorNotice } from '../shell/ErrorNotice';

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
  const chosen = parseSelect(address.select, dims);
  const window = chosen ?? defaultWindow(dims);
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
      {address.select !== undefined && chosen === undefined && (
        <ErrorNotice error={new Error(`The selection ${address.select} does not fit the extent [${dims.join(', ')}]. The whole dataset is shown.`)} />
      )}
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

interface FieldProps {
  text: string;
  dims: number[];
  onSelect: (select: string | undefined) => void;
}

/** A selection as text, which can be changed. */
export function SelectionField({ text, dims, onSelect }: FieldProps) {
  const [typed, setTyped] = useState(text);
  const fits = parseSelect(typed, dims) !== undefined;
  return (
    <form
      className="bar"
      onSubmit={(event) => {
        event.preventDefault();
        if (fits) onSelect(typed);
      }}
    >
      <label>
        Selection{' '}
        <input value={typed} size={Math.max(20, typed.length)} aria-invalid={!fits} spellCheck={false} onChange={(event) => setTyped(event.target.value)} />
      </label>
      <button disabled={!fits || typed === text}>Show</button>
      <button type="button" onClick={() => onSelect(undefined)}>
        All
      </button>
      <span className="quiet">of [{dims.join(', ')}]</span>
    </form>
  );
}
