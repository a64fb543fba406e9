/** A data frame as a table, a page of rows at a time: in the order of a column, or those with one category. */

import { useState } from 'react';
import { type Address, replaceAddress } from '../address';
import type { Domain } from '../api/hdf';
import { parseSelect } from '../api/values';
import { visible } from '../object/ExactText';
import { ErrorNotice } from '../shell/ErrorNotice';
import { formatCount } from '../shell/format';
import { FilterField } from './FilterField';
import { type Frame, frameAt } from './frame';
import { FrameSummary } from './FrameSummary';
import { FrameTable } from './FrameTable';
import { type Asked, PAGE, useRows, WIDE } from './useRows';

export function FrameView({ domain, address }: { domain: Domain; address: Address }) {
  const frame = frameAt(domain, address.path);
  if (frame === undefined) return <p className="notice">There is no data frame here.</p>;
  return <Rows key={address.path} domain={domain} frame={frame} address={address} />;
}

function Rows({ domain, frame, address }: { domain: Domain; frame: Frame; address: Address }) {
  const asFirst = parseSelect(address.select, [{ start: 0, stop: frame.length, step: 1 }])?.[0]?.start ?? 0;
  const [asked, setAsked] = useState<Asked>({ first: asFirst, left: 0, order: undefined, filter: undefined });
  const { start, stop, count, text, rows, error, retry, isLoading } = useRows(domain, frame, address.path, asked);
  const ask = (next: Partial<Asked>) => {
    const all = { ...asked, first: 0, ...next };
    setAsked(all);
    const isWhole = all.order === undefined && all.filter === undefined;
    const select = isWhole && all.first > 0 ? `[${all.first}:${Math.min(frame.length, all.first + PAGE)}]` : undefined;
    replaceAddress({ ...address, view: 'frame', select });
  };
  return (
    <section aria-label="Rows">
      {frame.problems.map((problem) => (
        <p key={problem} className="notice problem">
          {visible(problem)}
        </p>
      ))}
      <div className="bar">
        <FilterField domain={domain} frame={frame} filter={asked.filter} onFilter={(filter) => ask({ filter })} />
        {asked.order !== undefined && <button onClick={() => ask({ order: undefined })}>Order of the frame</button>}
      </div>
      <Pages start={start} count={count} onMove={(first) => ask({ first })} />
      <ColumnSteps left={asked.left} count={frame.columns.length} onMove={(left) => ask({ left, first: start })} />
      {error !== undefined && <ErrorNotice error={error} retry={retry} />}
      <p className="quiet" role="status" data-loading={isLoading}>
        {isLoading ? 'Loading… ' : ''}
        {count === 0 ? 'No rows' : `Rows ${formatCount(start)} to ${formatCount(stop - 1)} of ${formatCount(count)}`}
        {text !== '' && `: ${visible(text)}`}
      </p>
      {rows !== undefined && <FrameTable frame={frame} {...rows} order={asked.order} onOrder={(order) => ask({ order })} />}
      <FrameSummary domain={domain} frame={frame} />
    </section>
  );
}

interface PagesProps {
  start: number;
  count: number;
  onMove: (first: number) => void;
}

/** Steps from page to page, and to a row by its number. */
function Pages({ start, count, onMove }: PagesProps) {
  const [typed, setTyped] = useState('');
  const last = Math.max(0, Math.ceil(count / PAGE) - 1) * PAGE;
  const row = /^\d+$/.test(typed.trim()) && Number(typed) < count ? Number(typed) : undefined;
  if (count <= PAGE) return null;
  const steps: [string, number][] = [
    ['First', 0],
    ['Previous', start - PAGE],
    ['Next', start + PAGE],
    ['Last', last],
  ];
  return (
    <form
      className="bar"
      aria-label="Pages"
      onSubmit={(event) => {
        event.preventDefault();
        if (row !== undefined) onMove(Math.floor(row / PAGE) * PAGE);
      }}
    >
      {steps.map(([name, to]) => (
        <button key={name} type="button" disabled={to < 0 || to > last || to === start} onClick={() => onMove(to)}>
          {name}
        </button>
      ))}
      <label>
        Row <input className="limit" inputMode="numeric" value={typed} aria-invalid={typed !== '' && row === undefined} onChange={(event) => setTyped(event.target.value)} />
      </label>
      <button disabled={row === undefined}>Go</button>
    </form>
  );
}

interface ColumnProps {
  left: number;
  count: number;
  onMove: (left: number) => void;
}

/** Steps from column to column, where there are too many to be shown beside one another. */
function ColumnSteps({ left, count, onMove }: ColumnProps) {
  if (count <= WIDE) return null;
  return (
    <div className="bar">
      <button disabled={left === 0} onClick={() => onMove(left - WIDE)}>
        Columns before
      </button>
      <button disabled={left + WIDE >= count} onClick={() => onMove(left + WIDE)}>
        Columns after
      </button>
      <span className="quiet" role="status">
        Columns {formatCount(left)} to {formatCount(Math.min(count, left + WIDE) - 1)} of {formatCount(count)}
      </span>
    </div>
  );
}
