/** The attributes of an object. */

import type { HdfObject } from '../api/hdf';
import { typeText } from '../api/types';
import { formatValue } from '../shell/format';

export function Attributes({ object }: { object: HdfObject }) {
  const attributes = Object.entries(object.attributes ?? {});
  if (attributes.length === 0) return null;
  return (
    <details open={attributes.length <= 12}>
      <summary>
        {attributes.length} attribute{attributes.length > 1 ? 's' : ''}
      </summary>
      <table className="attributes">
        <tbody>
          {attributes.map(([name, { type, value, shape }]) => (
            <tr key={name}>
              <th scope="row">
                <bdi>{name}</bdi>
              </th>
              <td>
                <bdi>{shape.class === 'H5S_NULL' ? 'empty' : formatValue(value)}</bdi>
              </td>
              <td className="quiet">{typeText(type).slice(0, 60)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
