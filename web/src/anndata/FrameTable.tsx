/** Rows of a data frame: the index first, then the columns in their order. */

import { isBoolean, numberType, typeText } from '../api/types';
import { ExactText } from '../object/ExactText';
import type { Column, Frame } from './frame';
import { isSortable, type Order } from './frameListing';
import { type Cell, type Part, typeOf } from './frameValues';

interface Props {
  frame: Frame;
  /** Those that are shown. */
  columns: Column[];
  part: Part;
  /** By column, the index first if there is one. */
  cells: Cell[][];
  order: Order | undefined;
  onOrder: (order: Order) => void;
}

export function FrameTable({ frame, columns, part, cells, order, onOrder }: Props) {
  const { index } = frame;
  const places = Array.isArray(part) ? part : Array.from({ length: part.stop - part.start }, (_, at) => part.start + at);
  const values = index === undefined ? cells : cells.slice(1);
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Table of rows">
      <table className="frame">
        <thead>
          <tr>
            {index === undefined ? <th scope="col">Row</th> : <Head frame={frame} column={index} order={order} onOrder={onOrder} />}
            {columns.map((column) => (
              <Head key={column.name} frame={frame} column={column} order={order} onOrder={onOrder} />
            ))}
          </tr>
        </thead>
        <tbody>
          {places.map((place, row) => (
            <tr key={place} data-row={place}>
              <th scope="row">{index === undefined ? place : <Value cell={cells[0]?.[row]} />}</th>
              {columns.map((column, at) => (
                <td key={column.name} className={isNumber(column) ? 'number' : undefined}>
                  <Value cell={values[at]?.[row]} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {columns.length === 0 && <p className="notice">The frame has no columns.</p>}
    </div>
  );
}

function isNumber(column: Column): boolean {
  const type = typeOf(column);
  return column.categories === undefined && numberType(type) !== undefined && !isBoolean(type);
}

interface HeadProps {
  frame: Frame;
  column: Column;
  order: Order | undefined;
  onOrder: (order: Order) => void;
}

function Head({ frame, column, order, onOrder }: HeadProps) {
  const isBy = order?.column.name === column.name;
  const title = <ExactText text={column.name} isFixed />;
  const sort = () => onOrder({ column, down: isBy && !order.down });
  return (
    <th scope="col" aria-sort={!isBy ? 'none' : order.down ? 'descending' : 'ascending'}>
      {isSortable(frame, column) ? (
        <button className="plain" onClick={sort}>
          {title}
        </button>
      ) : (
        title
      )}
      <span className="kind">{kindText(column)}</span>
      {!isSortable(frame, column) && <span className="kind">too many rows to sort</span>}
    </th>
  );
}

function kindText(column: Column): string {
  if (column.categories !== undefined) return column.isOrdered ? 'ordered category' : 'category';
  return `${typeText(typeOf(column)).slice(0, 60)}${column.mask === undefined ? '' : ', or missing'}`;
}

export function Value({ cell }: { cell: Cell | undefined }) {
  if (cell === undefined) return null;
  if (cell.kind !== undefined) return <i className={cell.kind}>{cell.text}</i>;
  return <ExactText text={cell.text} most={400} />;
}
