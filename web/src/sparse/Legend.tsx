/** What the colours of a picture mean. */

import { formatNumber } from '../shell/format';
import { colourAt, colourOf, css, NOT_A_NUMBER, UNDEFINED } from './colours';
import type { Kind, Scale } from './drawing';
import { useEffect, useRef } from 'react';

interface Props {
  kind: Kind;
  scale: Scale;
  bin: [number, number];
}

export function Legend({ kind, scale, bin }: Props) {
  const { range, isLog } = scale;
  const isMean = bin[0] * bin[1] > 1;
  return (
    <div className="legend">
      <Swatch colour={css(UNDEFINED)} text="undefined" />
      {range !== undefined && (
        <span>
          {formatNumber(range.low)} <ScaleBar /> {formatNumber(range.high)}
        </span>
      )}
      {kind === 'values' && range !== undefined && range.low <= 0 && range.high >= 0 && (
        <Swatch colour={css(colourOf(0, range, isLog))} text="measured 0" />
      )}
      {kind === 'values' && <Swatch colour={css(NOT_A_NUMBER)} text="NaN" />}
      <span className="quiet">
        {kind === 'density' ? 'elements' : isMean ? 'mean of the defined elements' : 'value'}
        {isLog && ', logarithmic'}; {bin[0]} × {bin[1]} places a
        pixel
      </span>
    </div>
  );
}

function Swatch({ colour, text }: { colour: string; text: string }) {
  const box = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.style.backgroundColor = colour;
  }, [colour]);
  return (
    <span>
      <span className="swatch" ref={box} /> {text}
    </span>
  );
}

function ScaleBar() {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext('2d');
    if (!context) return;
    for (let at = 0; at < 100; at += 1) {
      context.fillStyle = css(colourAt(at / 99));
      context.fillRect(at, 0, 1, 10);
    }
  }, []);
  return <canvas ref={canvas} width={100} height={10} aria-hidden="true" className="scaleBar" />;
}
