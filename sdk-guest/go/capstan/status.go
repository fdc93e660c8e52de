// Conditions in the status of a primary.

package capstan

import (
	"slices"
	"time"
)

// StatusCondition is a condition in the status of a primary, as Kubernetes knows it. Of its type there is one in a status. Where the
// manifest says `statusConditions: standard`, Ready, Progressing and Degraded are the daemon's, and what is answered in their place is
// left out.
type StatusCondition struct {
	// Type is what is or is not so, in CamelCase.
	Type string `json:"type"`
	// Status says whether it is.
	Status ConditionStatus `json:"status"`
	// ObservedGeneration is the generation of the primary of which that is known.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastTransitionTime says since when it is, in RFC 3339; set by [Run.SetCondition].
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
	// Reason says why, as one word in CamelCase.
	Reason string `json:"reason"`
	// Message says why, for people.
	Message string `json:"message"`
}

// ConditionStatus says whether a condition is so.
//
// +kubebuilder:validation:Enum=True;False;Unknown
type ConditionStatus string

// What conditions can be.
const (
	// ConditionTrue: it is so.
	ConditionTrue ConditionStatus = "True"
	// ConditionFalse: it is not.
	ConditionFalse ConditionStatus = "False"
	// ConditionUnknown: that is not known.
	ConditionUnknown ConditionStatus = "Unknown"
)

// SetCondition puts a condition in the place of the one of its type, or behind the others. Its time is kept as long as its status is,
// else it is now. SetCondition returns whether anything is different.
//
//	conditions := page.Status.Conditions
//	run.SetCondition(&conditions, capstan.StatusCondition{
//		Type: "Synced", Status: capstan.ConditionTrue, Reason: "UpToDate", ObservedGeneration: page.Generation,
//	})
func (r Run) SetCondition(conditions *[]StatusCondition, condition StatusCondition) bool {
	place := slices.IndexFunc(*conditions, func(old StatusCondition) bool { return old.Type == condition.Type })
	condition.LastTransitionTime = ""
	if place >= 0 && (*conditions)[place].Status == condition.Status {
		condition.LastTransitionTime = (*conditions)[place].LastTransitionTime
	}
	if condition.LastTransitionTime == "" {
		condition.LastTransitionTime = r.Now().UTC().Format(time.RFC3339)
	}
	if place < 0 {
		*conditions = append(*conditions, condition)
		return true
	}
	changed := (*conditions)[place] != condition
	(*conditions)[place] = condition
	return changed
}
