// The daemon, from within a component. The build completes the names with the contract's version.

export * as cache from "capstan:operator/cache";
export * as config from "capstan:operator/config";
export * as context from "capstan:operator/context";
export * as expectations from "capstan:operator/expectations";
export * as log from "capstan:operator/log";
export * as memo from "capstan:operator/memo";
export * as operations from "capstan:operator/operations";
export * as recorder from "capstan:operator/recorder";
export * as sources from "capstan:operator/sources";
export * as system from "capstan:operator/system";
export * as workflow from "capstan:operator/workflow";
