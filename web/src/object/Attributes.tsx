/** The attributes of an object, to the last digit; who has the right makes, changes and deletes them. */

import { useState } from 'react';
import { isInexact, readAttributes, readExact } from '../api/attributes';
import { attributeValue } from '../api/elements';
import type { Domain, HdfAttribute, HdfObject } from '../api/hdf';
import { useLoad } from '../api/load';
import { useRights } from '../api/rights';
import { typeText } from '../api/types';
import { ErrorNotice } from '../shell/ErrorNotice';
import { formatElement } from '../shell/format';
import { DeleteAttribute, EditAttribute, NewAttribute } from './AttributeDialogs';
import { formOf } from './attributeForm';
import { ExactText, visible } from './ExactText';

interface Props {
  domain: Domain;
  object: HdfObject;
  /** Is given the attributes that there are after a change. */
  onChange: (changed: Pick<HdfObject, 'attributes'>) => void;
}

type Deed = { kind: 'new' } | { kind: 'edit' | 'delete'; name: string };

export function Attributes({ domain, object, onChange }: Props) {
  const rights = useRights(domain);
  const [deed, setDeed] = useState<Deed>();
  const [version, setVersion] = useState(0);
  const attributes = Object.entries(object.attributes ?? {});
  const inexact = attributes.filter(([, one]) => isInexact(one)).map(([name]) => name);
  const key = inexact.length === 0 ? undefined : `${object.id} ${version} ${inexact.join('\0')}`;
  const exact = useLoad(key, (signal) => readExact(domain, object, inexact, signal));
  const known = new Map(Object.entries(exact.isCurrent ? (exact.value ?? {}) : {}));
  // Until the exact value is there, none is shown.
  const shown = attributes.map(([name, one]) => [name, inexact.includes(name) ? known.get(name) : one] as const);
  const onDone = async () => {
    onChange({ attributes: await readAttributes(domain, object) });
    setVersion((count) => count + 1);
  };
  const dialog = { domain, object, close: () => setDeed(undefined), onDone };
  const chosen = deed === undefined || deed.kind === 'new' ? undefined : shown.find(([name]) => name === deed.name)?.[1];
  return (
    <section aria-label="Attributes">
      {attributes.length > 0 && (
        <details open={attributes.length <= 12}>
          <summary>
            {attributes.length} attribute{attributes.length > 1 ? 's' : ''}
          </summary>
          {exact.error !== undefined && <ErrorNotice error={exact.error} retry={exact.reload} />}
          <table className="attributes">
            <tbody>
              {shown.map(([name, attribute]) => (
                <Row
                  key={name}
                  name={name}
                  attribute={attribute}
                  type={object.attributes?.[name]?.type ?? ''}
                  onEdit={rights.update ? () => setDeed({ kind: 'edit', name }) : undefined}
                  onDelete={rights.delete ? () => setDeed({ kind: 'delete', name }) : undefined}
                />
              ))}
            </tbody>
          </table>
        </details>
      )}
      {rights.create && <button onClick={() => setDeed({ kind: 'new' })}>New attribute</button>}
      {deed?.kind === 'new' && <NewAttribute {...dialog} />}
      {deed?.kind === 'edit' && chosen !== undefined && <Edit {...dialog} name={deed.name} attribute={chosen} />}
      {deed?.kind === 'delete' && <DeleteAttribute {...dialog} name={deed.name} />}
    </section>
  );
}

type DialogProps = Omit<Parameters<typeof EditAttribute>[0], 'value' | 'form'>;

function Edit(props: DialogProps) {
  const value = plainValue(props.attribute);
  const form = formOf(props.attribute, value);
  return typeof form === 'string' ? null : <EditAttribute {...props} value={value} form={form} />;
}

interface RowProps {
  name: string;
  /** Undefined until its exact value is known. */
  attribute: HdfAttribute | undefined;
  type: HdfAttribute['type'];
  /** Undefined without the right to it. */
  onEdit: (() => void) | undefined;
  onDelete: (() => void) | undefined;
}

function Row({ name, attribute, type, onEdit, onDelete }: RowProps) {
  const form = attribute === undefined || onEdit === undefined ? undefined : formOf(attribute, plainValue(attribute));
  return (
    <tr>
      <th scope="row">
        <ExactText text={name} />
      </th>
      <td>{attribute === undefined ? 'Loading…' : <ExactText text={attributeText(attribute)} />}</td>
      <td className="quiet type">{typeText(type).slice(0, 60)}</td>
      {(onEdit !== undefined || onDelete !== undefined) && (
        <td className="deeds">
          {typeof form === 'object' && (
            <button aria-label={`Change ${visible(name)}`} onClick={onEdit}>
              Change
            </button>
          )}
          {typeof form === 'string' && <span className="quiet">cannot be changed here: {form}</span>}{' '}
          {onDelete !== undefined && (
            <button aria-label={`Delete ${visible(name)}`} onClick={onDelete}>
              Delete
            </button>
          )}
        </td>
      )}
    </tr>
  );
}

/** Returns the value of an attribute; null if none was written, and zeros or empty texts are read. */
function plainValue(attribute: HdfAttribute): unknown {
  return attributeValue(attribute) ?? null;
}

function attributeText(attribute: HdfAttribute): string {
  const { type, shape } = attribute;
  if (shape.class === 'H5S_NULL') return 'empty';
  const value = plainValue(attribute);
  return value === null ? 'not written: zero, or empty' : formatElement(value, type, (shape.dims ?? []).length);
}
