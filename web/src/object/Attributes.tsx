/** The attributes of an object. */

import { attributeValue } from '../api/elements';
import type { HdfAttribute, HdfObject } from '../api/hdf';
import { typeText } from '../api/types';
import { cut, formatElement } from '../shell/format';

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
          {attributes.map(([name, attribute]) => (
            <tr key={name}>
              <th scope="row">
                <bdi>{name}</bdi>
              </th>
              <td>
                <bdi>{attributeText(attribute)}</bdi>
              </td>
              <td className="quiet">{typeText(attribute.type).slice(0, 60)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

function attributeText(attribute: HdfAttribute): string {
  const { type, shape } = attribute;
  if (shape.class === 'H5S_NULL') return 'empty';
  return cut(formatElement(attributeValue(attribute), type, (shape.dims ?? []).length));
}
