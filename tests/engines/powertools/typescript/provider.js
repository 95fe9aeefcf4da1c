// SPDX-License-Identifier: Apache-2.0

import { writeSync } from 'node:fs';

export const answer = (value) => writeSync(1, `${JSON.stringify(value)}\n`);

class Failed extends Error {
  name = 'Failed';
}

const late = new Map(); // by order
export const released = (order) => {
  if (!late.has(order)) {
    const run = {};
    run.promise = new Promise((resolve) => {
      run.resolve = resolve;
    });
    late.set(order, run);
  }
  return late.get(order);
};

// A crash never returns, so that Powertools neither stores nor deletes anything, as
// after a kill.
export const takePayment = async (event, _context) => {
  if (event.mode === 'fail') throw new Failed();
  answer({ n: event.n, effect: true });
  if (event.mode === 'crash') {
    answer({ n: event.n, error: 'Killed' });
    return new Promise(() => {});
  }
  if (event.mode === 'late') await released(event.orderId).promise;
  return { receipt: event.n, amount: event.amount };
};
