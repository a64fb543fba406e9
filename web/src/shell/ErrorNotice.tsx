/** An error in words: what happened, and what a person can do. */

import { Component, type ReactNode } from 'react';
import { RequestError } from '../api/client';
import { ask, signedInBy } from '../api/session';

interface NoticeProps {
  error: unknown;
  /** Does again what failed. */
  retry?: (() => void) | undefined;
}

export function ErrorNotice({ error, retry }: NoticeProps) {
  const message = error instanceof Error ? error.message : String(error);
  return (
    <div className="error" role="alert">
      <p>{message}</p>
      {error instanceof RequestError && error.remedy !== '' && <p className="quiet">{error.remedy}</p>}
      {error instanceof RequestError && error.wantsSignIn && <button onClick={() => ask(signedInBy() === undefined ? 'wanted' : 'refused')}>Sign in</button>}
      {retry !== undefined && <button onClick={retry}>Try again</button>}
    </div>
  );
}

interface Props {
  children: ReactNode;
  /** What is shown: if it fails, another one is tried anew. */
  of: string;
}

/** Shows what fails below it as an error, so that the rest of the page stays. */
export class ErrorBoundary extends Component<Props, { error: unknown }> {
  override state: { error: unknown } = { error: undefined };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override componentDidUpdate(before: Props): void {
    if (this.state.error !== undefined && before.of !== this.props.of) this.setState({ error: undefined });
  }

  override render(): ReactNode {
    if (this.state.error === undefined) return this.props.children;
    return <ErrorNotice error={this.state.error} retry={() => this.setState({ error: undefined })} />;
  }
}
