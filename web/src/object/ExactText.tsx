/** A text as it is: what a reader would not see, or be misled by, is shown by its code; a long one is cut until it is asked for. */

import { useState } from 'react';
import { formatCount } from '../shell/format';

/** Controls but tabulators and line ends, marks of direction and what has no width, and halves of pairs. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Cs}/gu;
const MOST = 1200;
const MOST_EVER = 100_000;

/** Says whether a text has characters that are shown by their codes. */
export function hasHidden(text: string): boolean {
  return text.search(HIDDEN) >= 0;
}

/** Returns a text with codes in the place of what is hidden, for where only text can be. */
export function visible(text: string): string {
  return text.replace(HIDDEN, codeOf);
}

function codeOf(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

interface Props {
  text: string;
  most?: number;
  /** Whether it is in a button, in which there can be no other. */
  isFixed?: boolean;
}

export function ExactText({ text, most = MOST, isFixed = false }: Props) {
  const [whole, setWhole] = useState(false);
  const shown = text.slice(0, whole ? MOST_EVER : most);
  const pieces = shown.split(HIDDEN);
  const codes = shown.match(HIDDEN) ?? [];
  return (
    <>
      <bdi className="exact">
        {pieces.map((piece, at) => (
          <span key={at}>
            {piece}
            {codes[at] !== undefined && <span className="control">{codeOf(codes[at])}</span>}
          </span>
        ))}
      </bdi>
      {text.length > shown.length && (
        <>
          {'… '}
          {whole || isFixed ? (
            <span className="quiet">({formatCount(text.length)} characters)</span>
          ) : (
            <button className="plain" onClick={() => setWhole(true)}>
              Show all {formatCount(text.length)} characters
            </button>
          )}
        </>
      )}
    </>
  );
}
