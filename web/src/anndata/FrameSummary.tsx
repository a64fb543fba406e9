/** What a chosen column of a frame has, in few numbers. */

import { useState } from 'react';
import type { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import { visible } from '../object/ExactText';
import { ErrorNotice } from '../shell/ErrorNotice';
import { cut } from '../shell/format';
import type { Frame } from './frame';
import { summaryOf } from './frameSummary';
import { Value } from './FrameTable';

export function FrameSummary({ domain, frame }: { domain: Domain; frame: Frame }) {
  const [name, setName] = useState('');
  const column = frame.columns.find((one) => one.name === name);
  const found = useLoad(column === undefined ? undefined : `${domain.path} ${column.dataset.id} ${name} ${frame.length}`, async (signal) =>
    column === undefined ? { text: '', rows: [] } : summaryOf(domain, frame, column, signal),
  );
  if (frame.columns.length === 0) return null;
  const summary = column !== undefined && found.isCurrent ? found.value : undefined;
  return (
    <section aria-label="Summary of a column">
      <div className="bar">
        <label>
          Summary of{' '}
          <select value={name} onChange={(event) => setName(event.target.value)}>
            <option value="">no column</option>
            {frame.columns.map((one) => (
              <option key={one.name} value={one.name}>
                {visible(cut(one.name, 80))}
              </option>
            ))}
          </select>
        </label>
        <span className="quiet" role="status">
          {column !== undefined && found.loading ? 'Loading…' : (summary?.text ?? '')}
        </span>
      </div>
      {column !== undefined && found.error !== undefined && <ErrorNotice error={found.error} retry={found.reload} />}
      {summary !== undefined && summary.rows.length > 0 && (
        <table aria-label="Summary">
          <tbody>
            {summary.rows.map(({ of, value }, at) => (
              <tr key={at}>
                <th scope="row">
                  <Value cell={of} />
                </th>
                <td className="number">{value}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
