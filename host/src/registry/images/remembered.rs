//! Decides what counts of what is remembered of an image: what all who ask so were given, and what its operator has (`OC-7`, `OC-8`).

use capstan_core::manifest::Image;
use capstan_core::registry::{Credentials, Failure, Kind, Reference};

use super::super::kept::{Kept, Known, Own, Right};

/// Who asks for an image.
pub(super) struct Asker<'a> {
    pub(super) operator: &'a str,
    pub(super) image: &'a Image,
    /// One for each place where it is asked for.
    pub(super) credentials: &'a [Credentials],
}

/// What a reference names, and for whom that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) known: Known,
    pub(super) by: By,
}

/// For whom something counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// For all who ask with these credentials: the registry has sent them the component.
    Credentials,
    /// For this operator, which has the component: to these credentials, the registry has named it.
    Operator,
    /// For this operator, which was given it with other credentials.
    Former,
}

impl Asker<'_> {
    /// Returns the right of all who ask so for what a reference names, and that of the operator alone.
    fn rights(&self, reference: &Reference) -> (Right, Right) {
        let Self { operator, image, credentials } = self;
        let how = (image.insecure, image.pull_secret.is_some());
        (Right::of(reference, image.insecure, credentials), Right::of_operator(operator, reference, how))
    }

    /// Returns the right of all who ask so for the image.
    pub(super) fn right(&self) -> Right {
        self.rights(&self.image.reference).0
    }

    /// Returns all rights by which something of the image is remembered, where this is known of it.
    pub(super) fn held(&self, known: Option<&Known>) -> impl Iterator<Item = Right> {
        let reference = &self.image.reference;
        // Whoever remembers what was in force names it by its digest (`OP-5`).
        let pinned = known.map(|known| reference.at(&known.digest));
        let references: Vec<_> = std::iter::once(reference.clone()).chain(pinned).collect();
        let rights: Vec<_> = references.iter().map(|reference| self.rights(reference)).collect();
        rights.into_iter().flat_map(|(all, own)| [all, own])
    }

    /// Returns what is remembered of the image, where its signatures are `met`.
    pub(super) fn recall(&self, kept: &Kept, met: impl Fn(&Known) -> bool) -> Option<Remembered> {
        let (all, own) = self.rights(&self.image.reference);
        let own = kept.own(&own).filter(|own| met(&own.known));
        match (kept.known(&all).filter(&met), own) {
            // What it was given last, it was given with other credentials.
            (Some(known), Some(own)) if own.by != all && own.known.component != known.component => {
                Some(Remembered { known: own.known, by: By::Former })
            }
            (Some(known), _) => Some(Remembered { known, by: By::Credentials }),
            (None, Some(Own { known, by })) => {
                Some(Remembered { known, by: if by == all { By::Operator } else { By::Former } })
            }
            (None, None) => None,
        }
    }

    /// Remembers what the image is, and the same by its digest (`OP-5`).
    pub(super) fn remember(&self, kept: &Kept, Remembered { known, by }: &Remembered) {
        let reference = &self.image.reference;
        for reference in [reference.clone(), reference.at(&known.digest)] {
            let (all, own) = self.rights(&reference);
            let before = kept.remembered::<Own>(&own).filter(|own| own.known == *known);
            let is_said = match by {
                By::Credentials => {
                    if kept.remembered::<Known>(&all).as_ref() != Some(known) {
                        kept.remember(&all, known);
                    }
                    before.is_some()
                }
                By::Operator => before.is_some_and(|own| own.by == all),
                By::Former => true,
            };
            if !is_said {
                kept.remember(&own, &Own { known: known.clone(), by: all });
            }
        }
    }
}

impl Remembered {
    /// Whether the registry has named it to who asks: then it goes on whatever the registry says later.
    pub(super) fn is_given(&self) -> bool {
        match self.by {
            By::Credentials | By::Operator => true,
            By::Former => false,
        }
    }

    /// Returns what goes on though the registry does not say what the reference names. What was given to other credentials does as long as nobody
    /// says anything of these.
    pub(super) fn without(self, failure: &Failure) -> Option<Known> {
        let counts = self.is_given() || failure.kind == Kind::Away;
        counts.then_some(self.known)
    }
}

impl By {
    /// Returns the same, now that the registry has named to who asks what it is.
    pub(super) fn named(self) -> Self {
        match self {
            Self::Credentials => Self::Credentials,
            Self::Operator | Self::Former => Self::Operator,
        }
    }
}
