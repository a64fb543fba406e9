/** An error in words: what happened, and what a person can do. */

import { Component, type ReactNode } from 'react';
import { RequestError } from '../api/client';

export function ErrorNotice({ error }: { error: unknown }) {
  const message = error instanceof Error ? error.message : String(error);
  return (
    <div className="error" role="alert">
      <p>{message}</p>
      {error instanceof RequestError && <p className="quiet">{error.remedy}</p>}
    </div>
  );
}

interface Props {
  children: ReactNode;
}

/** Shows what fails below it as an error, so that the rest of the page stays. Give it a key to try anew. */
export class ErrorBoundary extends Component<Props, { error: unknown }> {
  override state: { error: unknown } = { error: undefined };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render(): ReactNode {
    return this.state.error === undefined ? this.props.children : <ErrorNotice error={this.state.error} />;
  }
}
