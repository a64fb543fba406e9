import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Explorer } from './shell/Explorer';
import './style.css';

const root = document.getElementById('root');
if (root === null) throw new Error('The page has no element for the explorer.');
createRoot(root).render(
  <StrictMode>
    <Explorer />
  </StrictMode>,
);
