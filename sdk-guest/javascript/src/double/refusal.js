// How the double refuses a call: as an engine throws the contract's `call-error`.

/**
 * Returns a refusal, to be thrown.
 * @param {string} reason
 * @param {string} message
 * @param {number} code the API server's status; 0 if it was not asked
 */
export function refusal(reason, message, code = 0) {
  return Object.assign(new Error(message), { payload: { reason, code, message } });
}
