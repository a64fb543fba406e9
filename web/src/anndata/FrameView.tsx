/** A data frame as a table, a page of rows at a time: in the order of a column, or those with one category. */

import { useState } from 'react';
import { type Address, replaceAddress } from '../address';
import type { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import { parseSelect } from '../api/values';
import { visible } from '../object/ExactText';
import { ErrorNotice } from '../shell/ErrorNotice';
import { formatCount } from '../shell/format';
import { FilterField } from './FilterField';
import { type Frame, frameAt } from './frame';
import { type Filter, findRows, type Order } from './frameListing';
import { FrameSummary } from './FrameSummary';
import { FrameTable } from './FrameTable';
import { type Part, readCells } from './frameValues';

const PAGE = 100;
/** The most columns that are shown beside one another. */
const WIDE = 100;

export function FrameView({ domain, address }: { domain: Domain; address: Address }) {
  const frame = frameAt(domain, address.path);
  if (frame === undefined) return <p className="notice">There is no data frame here.</p>;
  return <Rows key={address.path} domain={domain} frame={frame} address={address} />;
}

function Rows({ domain, frame, address }: { domain: Domain; frame: Frame; address: Address }) {
  const [first, setFirst] = useState(parseSelect(address.select, [frame.length])?.[0]?.start ?? 0);
  const [order, setOrder] = useState<Order>();
  const [filter, setFilter] = useState<Filter>();
  const [left, setLeft] = useState(0);
  const shown = frame.columns.slice(left, left + WIDE);
  const columns = frame.index === undefined ? shown : [frame.index, ...shown];
  const key = `${domain.path} ${address.path} ${columns.map(({ dataset }) => dataset.id).join(' ')} ${frame.length}`;
  const asked = order === undefined && filter === undefined ? undefined : `${key} ${order?.column.name} ${order?.down} ${filter?.column.name} ${filter?.key}`;
  const listing = useLoad(asked, (signal) => findRows(domain, frame, order, filter, signal));
  const isFound = asked === undefined || listing.isCurrent;
  const places = asked === undefined ? undefined : listing.value?.places;
  const count = asked === undefined ? frame.length : (places?.length ?? 0);
  const start = Math.min(first, Math.max(0, Math.ceil(count / PAGE) - 1) * PAGE);
  const stop = Math.min(count, start + PAGE);
  const part: Part = places === undefined ? { start, stop } : places.slice(start, stop);
  const rows = useLoad(isFound ? `${asked ?? key} ${start}` : undefined, async (signal) => {
    return { part, shown, cells: await readCells(domain, columns, part, signal) };
  });
  const error = listing.error ?? rows.error;
  const move = (to: number) => {
    setFirst(to);
    if (asked === undefined) replaceAddress({ ...address, view: 'frame', select: `[${to}:${Math.min(frame.length, to + PAGE)}]` });
  };
  const choose = (next: () => void) => {
    next();
    setFirst(0);
    replaceAddress({ ...address, view: 'frame', select: undefined });
  };
  const isLoading = error === undefined && (!isFound || !rows.isCurrent);
  return (
    <section aria-label="Rows">
      {frame.problems.map((problem) => (
        <p key={problem} className="notice problem">
          {visible(problem)}
        </p>
      ))}
      <div className="bar">
        <FilterField domain={domain} frame={frame} filter={filter} onFilter={(next) => choose(() => setFilter(next))} />
        {order !== undefined && <button onClick={() => choose(() => setOrder(undefined))}>Order of the frame</button>}
      </div>
      <Pages start={start} count={count} onMove={move} />
      {frame.columns.length > WIDE && (
        <div className="bar">
          <button disabled={left === 0} onClick={() => setLeft(left - WIDE)}>
            Columns before
          </button>
          <button disabled={left + WIDE >= frame.columns.length} onClick={() => setLeft(left + WIDE)}>
            Columns after
          </button>
          <span className="quiet" role="status">
            Columns {formatCount(left)} to {formatCount(left + shown.length - 1)} of {formatCount(frame.columns.length)}
          </span>
        </div>
      )}
      {error !== undefined && <ErrorNotice error={error} retry={listing.error === undefined ? rows.reload : listing.reload} />}
      <p className="quiet" role="status" data-loading={isLoading}>
        {isLoading ? 'Loading… ' : ''}
        {rowsText(start, stop, count)}
        {asked !== undefined && listing.value !== undefined && listing.value.text !== '' && `: ${visible(listing.value.text)}`}
      </p>
      {rows.value !== undefined && isFound && (
        <FrameTable frame={frame} columns={rows.value.shown} part={rows.value.part} cells={rows.value.cells} order={order} onOrder={(next) => choose(() => setOrder(next))} />
      )}
      <FrameSummary domain={domain} frame={frame} />
    </section>
  );
}

function rowsText(start: number, stop: number, count: number): string {
  if (count === 0) return 'No rows';
  return `Rows ${formatCount(start)} to ${formatCount(stop - 1)} of ${formatCount(count)}`;
}

/** Steps from page to page, and to a row by its number. */
function Pages({ start, count, onMove }: { start: number; count: number; onMove: (first: number) => void }) {
  const [typed, setTyped] = useState('');
  const last = Math.max(0, Math.ceil(count / PAGE) - 1) * PAGE;
  const row = /^\d+$/.test(typed.trim()) && Number(typed) < count ? Number(typed) : undefined;
  if (count <= PAGE) return null;
  return (
    <form
      className="bar"
      aria-label="Pages"
      onSubmit={(event) => {
        event.preventDefault();
        if (row !== undefined) onMove(Math.floor(row / PAGE) * PAGE);
      }}
    >
      {(
        [
          ['First', 0],
          ['Previous', start - PAGE],
          ['Next', start + PAGE],
          ['Last', last],
        ] as const
      ).map(([name, to]) => (
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
