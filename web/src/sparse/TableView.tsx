/** The defined elements of a part of a sparse dataset as a table: their places and values, sorted by any of them. */

import { useState } from 'react';
import { type Address, goTo } from '../address';
import { labelsOf, nameAt } from '../anndata/anndata';
import { type Domain, dimsOf, type HdfObject } from '../api/hdf';
import { useLoad } from '../api/load';
import { type DefinedElements, readDefined } from '../api/defined';
import { formatSelect, parseSelect, type Span, wholeOf } from '../api/values';
import { SelectionField } from '../object/DenseView';
import { ErrorNotice } from '../shell/ErrorNotice';
import { formatCount, formatExact, formatValue } from '../shell/format';
import { lengthOf, marginsOf, readDensity } from './density';

const MOST = 20_000;
const LISTED = 500;

interface Props {
  domain: Domain;
  object: HdfObject;
  address: Address;
}

interface Rows extends DefinedElements {
  select: string;
  names: string[][];
}

/** Reads the first elements of a selection: of as many places in the first dimension as have at most `MOST`. */
async function readFirst(domain: Domain, object: HdfObject, spans: Span[], path: string, signal: AbortSignal): Promise<Rows> {
  const box = spans.map((span) => ({ ...span, step: 1 }));
  const first = box[0] ?? { start: 0, stop: 1, step: 1 };
  if (box.length > 0) first.stop = first.start + (await rowsThatFit(domain, object, box, signal));
  const select = formatSelect(box);
  const found = await readDefined(domain, object, select, signal);
  const labels = labelsOf(domain, path);
  const axes = [labels?.rows, labels?.columns];
  const names = await Promise.all(
    Array.from({ length: labels === undefined ? 0 : Math.min(LISTED, found.values.length) }, (_, row) =>
      Promise.all(found.places.map((column, dim) => (axes[dim] === undefined ? '' : nameAt(domain, axes[dim], column[row] ?? 0)))),
    ),
  );
  return { ...found, select, names };
}

/** Returns how many places of the first dimension have together about `MOST` elements, one at least. */
async function rowsThatFit(domain: Domain, object: HdfObject, box: Span[], signal: AbortSignal): Promise<number> {
  const frame = { box, rows: 0, columns: box.length > 1 ? 1 : 0 };
  const whole = box.length > 2 || box.length === 1;
  if (whole) return Math.min(lengthOf(box[0]), box.length === 1 ? 1_000_000 : 1);
  const density = await readDensity(domain, object, frame, { approximate: true, withValues: false, pixels: [1024, 1], signal });
  let sum = 0;
  let rows = 0;
  for (const count of marginsOf(density).rows) {
    sum += count;
    if (sum > MOST && rows > 0) break;
    rows += 1;
  }
  return Math.max(1, Math.min(lengthOf(box[0]), rows * density.bin[0]));
}

export function TableView({ domain, object, address }: Props) {
  const dims = dimsOf(object);
  const spans = parseSelect(address.select, dims) ?? wholeOf(dims);
  const select = formatSelect(spans);
  const [order, setOrder] = useState<{ by: number; down: boolean }>({ by: 0, down: false });
  const found = useLoad(`${object.id} ${dims.join()} ${select}`, (signal) => readFirst(domain, object, spans, address.path, signal));
  const rows = found.value;
  const sorted = rows === undefined ? [] : sortedPlaces(rows, order.by, order.down, dims.length).slice(0, LISTED);
  const titles = [...dims.map((_, dim) => `Dimension ${dim}`), 'Value'];
  return (
    <section aria-label="Table">
      <SelectionField key={select} text={select} dims={dims} onSelect={(text) => goTo({ ...address, view: 'table', select: text })} />
      {found.error !== undefined && <ErrorNotice error={found.error} retry={found.reload} />}
      {rows === undefined && found.error === undefined && <p className="notice">Loading…</p>}
      {rows !== undefined && (
        <>
          <p className="quiet" role="status">
            {formatCount(rows.values.length)} defined elements in {rows.select}
            {rows.select !== select && `, the first of ${select}`}
            {rows.values.length > LISTED && `; ${LISTED} are listed`}
          </p>
          <div className="scroll" tabIndex={0} role="group" aria-label="Elements">
            <table>
              <thead>
                <tr>
                  {titles.map((title, by) => (
                    <th key={title} aria-sort={order.by !== by ? 'none' : order.down ? 'descending' : 'ascending'}>
                      <button className="plain" onClick={() => setOrder({ by, down: order.by === by && !order.down })}>
                        {title}
                      </button>
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {sorted.map((at) => (
                  <tr key={at}>
                    {rows.places.map((column, dim) => (
                      <td key={dim} className="number">
                        {rows.names[at]?.[dim]} {column[at]}
                      </td>
                    ))}
                    <td className="number">{textOf(rows.values, at)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </section>
  );
}

/** Returns the numbers of the elements in order: by the place in a dimension, or by the value. */
function sortedPlaces(rows: DefinedElements, by: number, down: boolean, rank: number): number[] {
  const sign = down ? -1 : 1;
  const keys: ArrayLike<unknown> = (by === rank ? rows.values : rows.places[by]) ?? [];
  const compare = (a: number, b: number) => compareKeys(keys[a], keys[b], sign);
  return Array.from({ length: keys.length }, (_, at) => at).sort(compare);
}

/** Compares numbers, of which NaN is last in both directions, or texts. */
function compareKeys(left: unknown, right: unknown, sign: number): number {
  if (typeof left === 'string' || typeof left === 'object') return sign * formatValue(left).localeCompare(formatValue(right));
  const [a, b] = [left as number, right as number];
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  return a < b ? -sign : a > b ? sign : 0;
}

function textOf(values: DefinedElements['values'], at: number): string {
  const value = values[at];
  return typeof value === 'number' ? formatExact(value, values instanceof Float32Array) : formatValue(value);
}
