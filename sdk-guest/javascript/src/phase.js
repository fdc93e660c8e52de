// Knows whether the daemon has called yet. Before that, while modules load, there is nobody to ask.

export const phase = { running: false };
