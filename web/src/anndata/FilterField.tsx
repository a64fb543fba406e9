/** Chooses the rows of a frame that have one category, or one truth value, or none. */

import { useState } from 'react';
import { type Domain, dimsOf } from '../api/hdf';
import { useLoad } from '../api/load';
import { visible } from '../object/ExactText';
import { ErrorNotice } from '../shell/ErrorNotice';
import { cut } from '../shell/format';
import type { Column, Frame } from './frame';
import { type Filter, isFilterable } from './frameListing';
import { readNames } from './frameValues';

interface Props {
  domain: Domain;
  frame: Frame;
  filter: Filter | undefined;
  onFilter: (filter: Filter | undefined) => void;
}

export function FilterField({ domain, frame, filter, onFilter }: Props) {
  const columns = frame.columns.filter((column) => isFilterable(frame, column));
  const [name, setName] = useState('');
  const column = columns.find((one) => one.name === name);
  const choices = useLoad(column === undefined ? undefined : `${domain.path} ${column.dataset.id} ${column.name}`, (signal) => choicesOf(domain, column, signal));
  const found = choices.isCurrent ? (choices.value ?? []) : [];
  if (columns.length === 0) return null;
  return (
    <>
      <label>
        Filter by{' '}
        <select
          value={name}
          onChange={(event) => {
            setName(event.target.value);
            if (filter !== undefined) onFilter(undefined);
          }}
        >
          <option value="">no column</option>
          {columns.map((one) => (
            <option key={one.name} value={one.name}>
              {visible(cut(one.name, 80))}
            </option>
          ))}
        </select>
      </label>
      {column !== undefined && (
        <label>
          that is{' '}
          <select value={filter === undefined ? '' : String(filter.key)} onChange={(event) => onFilter(found.find((one) => String(one.key) === event.target.value))}>
            <option value="">anything</option>
            {found.map((one) => (
              <option key={one.key} value={String(one.key)}>
                {visible(cut(one.name, 80))}
              </option>
            ))}
          </select>
        </label>
      )}
      {choices.error !== undefined && <ErrorNotice error={choices.error} retry={choices.reload} />}
    </>
  );
}

async function choicesOf(domain: Domain, column: Column | undefined, signal: AbortSignal): Promise<Filter[]> {
  if (column === undefined) return [];
  const { categories, mask } = column;
  const missing = { column, key: null, name: 'missing' };
  if (categories === undefined) {
    const both = [
      { column, key: 1, name: 'true' },
      { column, key: 0, name: 'false' },
    ];
    return mask === undefined ? both : [...both, missing];
  }
  const codes = Array.from({ length: dimsOf(categories)[0] ?? 0 }, (_, code) => code);
  const names = await readNames(domain, categories, codes, signal);
  return [...codes.map((code) => ({ column, key: code, name: names.get(code) ?? '' })), missing];
}
