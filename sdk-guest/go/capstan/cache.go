// Reads from the daemon's caches.

package capstan

// Secondary returns the one object of a source that belongs to the primary; nil if there is none. The source of a dependent
// has the dependent's name. Fails with [ErrAmbiguous] if there are several.
//
//	deployment, err := run.Secondary[appsv1.Deployment]("deployment")
func (r Run) Secondary[T any](source string) (*T, error) { return r.One[T](Source(source)) }

// Secondaries returns the objects of a source that belong to the primary.
func (r Run) Secondaries[T any](source string) ([]T, error) {
	return r.List[T](Query{From: Source(source)})
}

// One returns the one object of a place that belongs to the primary; nil if there is none. Fails with [ErrAmbiguous] if
// there are several, and with [ErrMissing] if no source watches the kind.
func (r Run) One[T any](place Place) (*T, error) {
	text, err := r.ask().FindOne(place)
	if err != nil {
		return nil, err
	}
	return decodeIf[T](text)
}

// Named returns an object by its name, whether it belongs to the primary or not; nil if there is none. The namespace of a
// cluster-scoped object is empty.
func (r Run) Named[T any](place Place, namespace, name string) (*T, error) {
	text, err := r.ask().FindNamed(place, namespace, name)
	if err != nil {
		return nil, err
	}
	return decodeIf[T](text)
}

// List returns all objects that a query selects, page by page, ordered by namespace and name.
//
//	pods, err := run.List[corev1.Pod](capstan.Query{From: capstan.Source("pods"), Labels: "app=web"})
func (r Run) List[T any](query Query) ([]T, error) {
	var items []T
	for {
		page, err := r.Page[T](query)
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.Next == "" {
			return items, nil
		}
		query.After = page.Next
	}
}

// Page returns one page of what a query selects.
func (r Run) Page[T any](query Query) (Page[T], error) {
	if query.Limit < 0 {
		return Page[T]{}, negative("Limit", query.Limit)
	}
	texts, err := r.ask().FindAll(query)
	if err != nil {
		return Page[T]{}, err
	}
	items := make([]T, len(texts.Items))
	for i, text := range texts.Items {
		if items[i], err = decode[T](text); err != nil {
			return Page[T]{}, err
		}
	}
	return Page[T]{items, texts.Next}, nil
}

// Page is part of a long answer.
type Page[T any] struct {
	// Items are the objects, ordered by namespace and name.
	Items []T
	// Next is where the next page begins, for [Query.After]; empty if this was the last.
	Next string
}

// Query is a question for many objects. Own writes are visible at once, and no request is sent.
type Query struct {
	// From says where to look.
	From Place
	// Where says which objects; without it, those that belong to the primary.
	Where Selection
	// Labels is a label selector, written as for kubectl.
	Labels string
	// Fields are the JSON pointers of the fields to return, beside apiVersion, kind, namespace and name; none = all. Large
	// answers cost time.
	Fields []string
	// NewestOnly returns only the newest version of an object that several sources hold.
	NewestOnly bool
	// Limit is how many objects a page has at most; 0 = as many as the manifest allows.
	Limit int
	// After is the [Page.Next] of the page before.
	After string
}

// Place says where to look: made by [Source], [Kind] or [Primaries].
type Place struct {
	// Sort tells which of the fields count.
	Sort PlaceSort
	// Source is the source's name.
	Source string
	// APIVersion and Kind are those of the objects.
	APIVersion, Kind string
}

// PlaceSort is a sort of [Place].
type PlaceSort uint8

// The sorts of places.
const (
	InSource PlaceSort = iota
	InKind
	InPrimaries
)

// Source is one source. The source of a dependent has the dependent's name.
func Source(name string) Place { return Place{Sort: InSource, Source: name} }

// Kind is all sources of a kind: Kind("apps/v1", "Deployment").
func Kind(apiVersion, kind string) Place {
	return Place{Sort: InKind, APIVersion: apiVersion, Kind: kind}
}

// Primaries is the primaries of this controller.
func Primaries() Place { return Place{Sort: InPrimaries} }

// Selection says which objects of a place: the zero value, or made by [InNamespace], [Everywhere] or [Indexed].
type Selection struct {
	// Sort tells which of the fields count.
	Sort SelectionSort
	// Namespace is the namespace to look in.
	Namespace string
	// Index and Key are those of the manifest's index.
	Index, Key string
}

// SelectionSort is a sort of [Selection].
type SelectionSort uint8

// The sorts of selections.
const (
	ByRelation SelectionSort = iota
	ByNamespace
	ByNothing
	ByIndex
)

// InNamespace selects all objects of a namespace, whether they belong to the primary or not.
func InNamespace(namespace string) Selection {
	return Selection{Sort: ByNamespace, Namespace: namespace}
}

// Everywhere selects all objects.
func Everywhere() Selection { return Selection{Sort: ByNothing} }

// Indexed selects the objects under a key of an index of the manifest.
func Indexed(index, key string) Selection { return Selection{Sort: ByIndex, Index: index, Key: key} }
