/** A selection as text, which can be changed. */

import { useState } from 'react';
import { extentText, parseSelect, type Span } from '../api/values';
import { ErrorNotice } from '../shell/ErrorNotice';

interface Props {
  text: string;
  extent: Span[];
  onSelect: (select: string | undefined) => void;
}

export function SelectionField({ text, extent, onSelect }: Props) {
  const [typed, setTyped] = useState(text);
  const fits = parseSelect(typed, extent) !== undefined;
  return (
    <form
      className="bar"
      onSubmit={(event) => {
        event.preventDefault();
        if (fits) onSelect(typed);
      }}
    >
      <label>
        Selection{' '}
        <input value={typed} size={Math.max(20, typed.length)} aria-invalid={!fits} spellCheck={false} onChange={(event) => setTyped(event.target.value)} />
      </label>
      <button disabled={!fits || typed === text}>Show</button>
      <button type="button" onClick={() => onSelect(undefined)}>
        All
      </button>
      <span className="quiet">of {extentText(extent)}</span>
    </form>
  );
}

/** Says so if an address has a selection that cannot be shown. */
export function SelectionNotice({ select, extent }: { select: string | undefined; extent: Span[] }) {
  if (select === undefined || parseSelect(select, extent) !== undefined) return null;
  return <ErrorNotice error={new Error(`The selection ${select} does not fit the extent ${extentText(extent)}. The default selection is shown.`)} />;
}
