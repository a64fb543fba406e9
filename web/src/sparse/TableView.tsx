/** The defined elements of a part of a sparse dataset as a table: their places and values, sorted by any of them. */

import { useMemo, useState } from 'react';
import { type Address, goTo } from '../address';
import { labelsOf, namesAt } from '../anndata/anndata';
import type { DefinedElements } from '../api/defined';
import { type Domain, dimsOf, type HdfObject, type HdfType } from '../api/hdf';
import { useLoad } from '../api/load';
import { numberType } from '../api/types';
import { extentOf, formatSelect, parseSelect } from '../api/values';
import { SelectionField, SelectionNotice } from '../object/SelectionField';
import { ErrorNotice } from '../shell/ErrorNotice';
import { cut, formatCount, formatElement, formatExact } from '../shell/format';
import { fillOf, isOrdered, LISTED, type Order, readFirst, readOrdered, type Rows, sortedRows } from './tableRows';

interface Props {
  domain: Domain;
  object: HdfObject;
  address: Address;
}

export function TableView({ domain, object, address }: Props) {
  const dims = dimsOf(object);
  const extent = extentOf(object);
  const spans = parseSelect(address.select, extent) ?? extent;
  const select = formatSelect(spans);
  const [order, setOrder] = useState<Order>({ by: 0, down: false });
  const key = `${object.id} ${formatSelect(extent)} ${select}`;
  const first = useLoad(key, (signal) => readFirst(domain, object, spans, signal));
  // Of a part all is here, and is sorted here: then measured fill values are among the others.
  const isByServer = order.by === dims.length && first.isCurrent && first.value?.select !== select && isOrdered(object);
  const best = useLoad(isByServer ? `${key} ${order.down}` : undefined, (signal) => readOrdered(domain, object, spans, order.down, signal));
  const isBest = isByServer && best.isCurrent && best.value !== undefined;
  const rows = isBest ? best.value : first.value;
  const numbers = useMemo(() => {
    if (rows === undefined) return [];
    return isBest ? Array.from(rows.values, (_, at) => at) : sortedRows(rows, order).slice(0, LISTED);
  }, [rows, isBest, order]);
  const error = first.error ?? (isByServer ? best.error : undefined);
  const isLoading = error === undefined && (!first.isCurrent || (isByServer && !isBest));
  return (
    <section aria-label="Table">
      <SelectionField key={select} text={select} extent={extent} onSelect={(text) => goTo({ ...address, view: 'table', select: text })} />
      <SelectionNotice select={address.select} extent={extent} />
      {error !== undefined && <ErrorNotice error={error} retry={isByServer ? best.reload : first.reload} />}
      <p className="quiet" role="status" data-loading={isLoading}>
        {isLoading ? 'Loading… ' : ''}
        {isBest ? bestText(object, select, numbers.length, order.down) : first.value !== undefined ? firstText(first.value, select, first.isCurrent) : ''}
      </p>
      {rows !== undefined && <Elements domain={domain} path={address.path} type={object.type ?? ''} dims={dims} rows={rows} numbers={numbers} order={order} onOrder={setOrder} />}
    </section>
  );
}

function firstText(rows: Rows, select: string, isCurrent: boolean): string {
  const part = isCurrent && rows.select !== select ? `, the first of ${select}` : '';
  const listed = rows.values.length > LISTED ? `; ${LISTED} are listed` : '';
  return `${formatCount(rows.values.length)} defined elements in ${rows.select}${part}${listed}`;
}

function bestText(object: HdfObject, select: string, count: number, down: boolean): string {
  const type = numberType(object.type ?? '');
  const fill = type === undefined ? '' : fillOf(object, type);
  return `The ${count} ${down ? 'greatest' : 'least'} of ${select}, without elements that have the fill value ${fill}`;
}

interface ElementsProps {
  domain: Domain;
  path: string;
  type: HdfType;
  dims: number[];
  rows: DefinedElements;
  /** The rows to list, in order. */
  numbers: number[];
  order: Order;
  onOrder: (order: Order) => void;
}

function Elements({ domain, path, type, dims, rows, numbers, order, onOrder }: ElementsProps) {
  const places = rows.places.map((column) => numbers.map((at) => column[at] ?? 0));
  const labels = labelsOf(domain, path);
  const axes = [labels?.rows, labels?.columns];
  const key = `${path} ${places.map((column) => column.join()).join(';')}`;
  const found = useLoad(labels === undefined ? undefined : key, (signal) =>
    Promise.all(axes.map((axis, dim) => (axis === undefined ? new Map<number, string>() : namesAt(domain, axis, places[dim] ?? [], signal)))),
  );
  const names = found.isCurrent ? found.value : undefined;
  const titles = [...dims.map((_, dim) => `Dimension ${dim}`), 'Value'];
  return (
    <>
      {found.error !== undefined && <ErrorNotice error={found.error} retry={found.reload} />}
      <div className="scroll" tabIndex={0} role="group" aria-label="Elements">
        <table>
          <thead>
            <tr>
              {titles.map((title, by) => (
                <th key={title} aria-sort={order.by !== by ? 'none' : order.down ? 'descending' : 'ascending'}>
                  <button className="plain" onClick={() => onOrder({ by, down: order.by === by && !order.down })}>
                    {title}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {numbers.map((at) => (
              <tr key={at}>
                {rows.places.map((column, dim) => (
                  <td key={dim} className="number">
                    {names?.[dim]?.get(column[at] ?? 0)} {column[at]}
                  </td>
                ))}
                <td className="number">{textOf(rows.values, at, type)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function textOf(values: DefinedElements['values'], at: number, type: HdfType): string {
  const value = values[at];
  return typeof value === 'number' ? formatExact(value, values instanceof Float32Array) : cut(formatElement(value, type));
}
