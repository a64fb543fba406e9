/** Dialogs that make, change and delete an attribute. */

import { useState } from 'react';
import { putAgain, putNew, putValue, removeAttribute } from '../api/attributes';
import type { Domain, HdfAttribute, HdfObject } from '../api/hdf';
import { Dialog, DialogForm } from '../shell/Dialog';
import { ExactText, visible } from './ExactText';
import { type Form, hintOf, NEW_TYPES, parseText, textOf } from './attributeForm';

interface Props {
  domain: Domain;
  object: HdfObject;
  close: () => void;
  /** Has what is there now shown. */
  onDone: () => Promise<void>;
}

interface EditProps extends Props {
  name: string;
  attribute: HdfAttribute;
  value: unknown;
  form: Form;
}

export function EditAttribute({ domain, object, name, attribute, value, form, close, onDone }: EditProps) {
  const [before] = useState(textOf(value, form));
  const [text, setText] = useState(before);
  const submit = async () => {
    const next = parseText(text, form);
    const isLonger = Array.isArray(next) && next.length !== (attribute.shape.dims ?? [])[0];
    if (isLonger) await putAgain(domain, object, name, { type: attribute.type, shape: { class: 'H5S_SIMPLE', dims: [next.length] }, value: next });
    else if (text !== before || value === null || value === undefined) await putValue(domain, object, name, attribute, next);
    await onDone();
  };
  return (
    <Dialog title={`Change ${visible(name).slice(0, 200)}`} close={close}>
      <DialogForm name="Save" submit={submit} close={close}>
        <ValueField text={text} form={form} onText={setText} />
      </DialogForm>
    </Dialog>
  );
}

export function NewAttribute({ domain, object, close, onDone }: Props) {
  const [name, setName] = useState('');
  const [kind, setKind] = useState('text');
  const [isList, setIsList] = useState(false);
  const [text, setText] = useState('');
  const form: Form = { type: NEW_TYPES[kind] ?? '', isList, isJson: isList && kind === 'text' };
  const submit = async () => {
    if (object.attributes !== undefined && Object.hasOwn(object.attributes, name)) {
      throw new Error('There is an attribute of that name: change it, or choose another name.');
    }
    const value = parseText(text, form);
    const shape = Array.isArray(value) ? { class: 'H5S_SIMPLE' as const, dims: [value.length] } : { class: 'H5S_SCALAR' as const };
    await putNew(domain, object, name, { type: form.type, shape, value });
    await onDone();
  };
  return (
    <Dialog title="New attribute" close={close}>
      <DialogForm name="Make" isReady={name !== ''} submit={submit} close={close}>
        <label>
          Name <input value={name} spellCheck={false} onChange={(event) => setName(event.target.value)} />
        </label>
        <label>
          Type{' '}
          <select value={kind} onChange={(event) => setKind(event.target.value)}>
            {Object.keys(NEW_TYPES).map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <label>
          <input type="checkbox" checked={isList} onChange={(event) => setIsList(event.target.checked)} /> a list
        </label>
        <ValueField text={text} form={form} onText={setText} />
      </DialogForm>
    </Dialog>
  );
}

function ValueField({ text, form, onText }: { text: string; form: Form; onText: (text: string) => void }) {
  const isLong = form.isList || (typeof form.type !== 'string' && form.type.class === 'H5T_STRING');
  const field = { value: text, spellCheck: false, onChange: (event: { target: { value: string } }) => onText(event.target.value) };
  return (
    <label>
      Value {isLong ? <textarea rows={4} {...field} /> : <input {...field} />} <span className="quiet">{hintOf(form)}</span>
    </label>
  );
}

export function DeleteAttribute({ domain, object, name, close, onDone }: Props & { name: string }) {
  const submit = async () => {
    await removeAttribute(domain, object, name);
    await onDone();
  };
  return (
    <Dialog title="Delete an attribute" close={close}>
      <DialogForm name="Delete" isDanger submit={submit} close={close}>
        <p>
          Delete <ExactText text={name} most={200} /> with its value? Nothing brings it back.
        </p>
      </DialogForm>
    </Dialog>
  );
}
