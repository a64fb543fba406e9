/** H5Web's displays of a dense dataset or a NeXus group; loaded when one is drawn, with three.js. */

import { App, DataProvider } from '@h5web/app';
import '@h5web/app/styles.css';
import { useEffect, useMemo, useRef } from 'react';
import type { Domain } from '../api/hdf';
import type { Span } from '../api/values';
import { mendH5Web } from '../mend';
import { DomainProvider } from './provider';

interface Props {
  domain: Domain;
  path: string;
  window: Span[] | undefined;
  /** What the address says of the window. */
  select: string | undefined;
}

export default function H5WebView({ domain, path, window, select }: Props) {
  const key = `${path} ${JSON.stringify(window)}`;
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the key stands for path and window
  const provider = useMemo(() => new DomainProvider(domain, path, window), [domain, key]);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => (root.current === null ? undefined : mendH5Web(root.current)), []);
  return (
    <div className="h5web" ref={root}>
      {/* Another selection begins anew; a dataset that has grown keeps the display that was chosen. */}
      <DataProvider key={`${path} ${select}`} api={provider}>
        <App initialPath={path} sidebarOpen={false} />
      </DataProvider>
    </div>
  );
}
