//! A set of nodes.

/// Some of the nodes, by their numbers. There are never more than fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeSet(u64);

impl NodeSet {
    pub(super) const NONE: Self = Self(0);

    /// The first so many nodes.
    pub(super) fn first(count: usize) -> Self {
        (0..count).collect()
    }

    pub(super) fn has(self, node: usize) -> bool {
        self.0 >> node & 1 == 1
    }

    pub(super) fn add(&mut self, node: usize) {
        self.0 |= 1 << node;
    }

    pub(super) fn remove(&mut self, node: usize) {
        self.0 &= !(1 << node);
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |node| self.has(*node))
    }

    /// Those that the other one has not.
    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<T: IntoIterator<Item = usize>>(nodes: T) -> Self {
        let mut set = Self::NONE;
        nodes.into_iter().for_each(|node| set.add(node));
        set
    }
}
