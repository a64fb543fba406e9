/** The default plot of a NeXus group: H5Web's, or the picture of a sparse signal. */

import { lazy, Suspense } from 'react';
import { type Address, formatAddress } from '../address';
import { type Domain, isSparse } from '../api/hdf';
import { ErrorNotice } from '../shell/ErrorNotice';
import { PictureView } from '../sparse/PictureView';
import { findPlot } from './nexus';

const H5WebView = lazy(() => import('./H5WebView'));

interface Props {
  domain: Domain;
  address: Address;
}

export function NexusView({ domain, address }: Props) {
  const plot = findPlot(domain, address.path);
  if (plot?.signal === undefined) {
    return <ErrorNotice error={new Error(`The default plot is to be ${plot?.path ?? 'in another group'}, and there is no dataset in this domain. Choose one in the tree.`)} />;
  }
  if (isSparse(plot.signal)) {
    const { bucket } = address;
    return (
      <>
        <p className="notice">
          The signal <a href={formatAddress({ domain: address.domain, bucket, path: plot.path })}>{plot.path}</a> is sparse: its picture has places, and
          not the values of its axes.
        </p>
        <PictureView domain={domain} object={plot.signal} address={address} live={false} />
      </>
    );
  }
  return (
    <Suspense fallback={<p className="notice">Loading the displays…</p>}>
      <H5WebView domain={domain} path={address.path} window={undefined} select={undefined} />
    </Suspense>
  );
}
