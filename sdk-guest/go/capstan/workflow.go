// Workflows and dependents that are run by hand, and what became of them.

package capstan

import "encoding/json"

// Workflow returns a standalone workflow of the manifest, or the managed one if the name is empty.
func (r Run) Workflow(name string) Workflow { return Workflow{r.ask(), name} }

// Dependent returns a standalone dependent of the manifest.
func (r Run) Dependent(name string) Dependent { return Dependent{r.ask(), name} }

// Workflow is a workflow of the manifest. The daemon calls the functions of its dependents in another instance of the
// component; values for them go through memos.
type Workflow struct {
	daemon Daemon
	name   string
}

// Reconcile reconciles it; the managed one must be explicit. Fails with [ErrFailed] if a node failed, unless the manifest
// leaves failures to the reconciler. Works in Reconcile and Cleanup only, and uses up the time of that call.
func (w Workflow) Reconcile() (WorkflowResult, error) { return w.daemon.RunWorkflow(Forth, w.name) }

// Cleanup deletes what it has made, leaves first; otherwise like Reconcile.
func (w Workflow) Cleanup() (WorkflowResult, error) { return w.daemon.RunWorkflow(Back, w.name) }

// LastResult returns what became of it in this run; nil if it has not run.
func (w Workflow) LastResult() *WorkflowResult { return w.daemon.LastResult(w.name) }

// Dependent is a standalone dependent of the manifest.
type Dependent struct {
	daemon Daemon
	name   string
}

// Reconcile reconciles it.
func (d Dependent) Reconcile() (NodeResult, error) { return d.daemon.RunDependent(Forth, d.name) }

// Remove deletes it.
func (d Dependent) Remove() (NodeResult, error) { return d.daemon.RunDependent(Back, d.name) }

// WorkflowResult is what became of a workflow. As JSON, in a status for example, it has the words of the contract.
type WorkflowResult struct {
	// Nodes are those that were reached, in the order of the graph.
	Nodes []NodeResult `json:"nodes,omitempty"`
	// Complete is true if no node failed and, after reconciling, no ready postcondition is unmet; after cleaning up, all delete
	// postconditions are met.
	Complete bool `json:"complete"`
}

// NodeResult is what became of a node.
type NodeResult struct {
	// Name is the dependent's.
	Name string `json:"name"`
	// Done is what was done, one entry per object; none if it failed or was inactive.
	Done []ObjectResult `json:"done,omitempty"`
	// Conditions are those that were evaluated.
	Conditions []ConditionOutcome `json:"conditions,omitempty"`
	// Failed is the text of its failure; empty if it did not fail.
	Failed string `json:"failed,omitempty"`
}

// ObjectResult is what was done with an object.
type ObjectResult struct {
	// Key is its name.
	Key string `json:"key"`
	// Operation is what was done.
	Operation Operation `json:"operation"`
}

// Operation is what can be done with an object.
type Operation string

// The operations.
const (
	OperationUnchanged Operation = "unchanged"
	OperationCreated   Operation = "created"
	OperationUpdated   Operation = "updated"
	OperationDeleted   Operation = "deleted"
)

// ConditionOutcome is what a condition said.
type ConditionOutcome struct {
	// Role is what the condition is for.
	Role ConditionRole `json:"role"`
	// Met says whether it is met.
	Met bool `json:"met"`
	// Detail is what it gave as such; nil if nothing.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// ConditionRole is what a condition is for.
type ConditionRole string

// The roles.
const (
	Activation            ConditionRole = "activation"
	ReconcilePrecondition ConditionRole = "reconcile-precondition"
	ReadyPostcondition    ConditionRole = "ready-postcondition"
	DeletePostcondition   ConditionRole = "delete-postcondition"
)
