//! A segment tree of needed grants: subtract from a range, find the first leaf that needs few, in O(log n).

/// A leaf that needs no finite number of grants: nobody is there.
pub(super) const NOBODY: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Smallest leaf below, what the ancestors still owe not counted.
    min: u64,
    /// What the leaves below are still owed.
    owed: u64,
}

const EMPTY: Node = Node { min: NOBODY, owed: 0 };

/// Leaves 0 to n − 1, all [`NOBODY`] at first. The root is node 1, the children of node k are 2k and 2k + 1.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    leaves: usize,
    /// Nodes visited.
    pub(super) steps: u64,
}

impl Tree {
    pub(super) fn new(leaves: usize) -> Self {
        let leaves = leaves.next_power_of_two();
        Self { nodes: vec![EMPTY; 2 * leaves], leaves, steps: 0 }
    }

    /// The smallest leaf.
    pub(super) fn min(&self) -> u64 {
        self.nodes[1].min
    }

    pub(super) fn get(&self, leaf: usize) -> u64 {
        let mut k = self.leaves + leaf;
        let mut value = self.nodes[k].min;
        while value != NOBODY && k > 1 {
            k /= 2;
            value -= self.nodes[k].owed;
        }
        value
    }

    pub(super) fn set(&mut self, leaf: usize, value: u64) {
        let k = self.leaves + leaf;
        for level in (1..=self.leaves.ilog2()).rev() {
            self.pay(k >> level);
        }
        self.nodes[k].min = value;
        self.update_above(k);
    }

    fn update_above(&mut self, mut k: usize) {
        while k > 1 {
            k /= 2;
            self.update(k);
        }
    }

    /// Subtracts `grants` from every leaf that is somebody; none may need less.
    pub(super) fn subtract_all(&mut self, grants: u64) {
        self.owe(1, grants);
    }

    /// Subtracts `grants` from the leaves `from..to` that are somebody; none of them may need less.
    pub(super) fn subtract(&mut self, from: usize, to: usize, grants: u64) {
        if from < to {
            self.subtract_below(1, 0, self.leaves, from, to, grants);
        }
    }

    fn subtract_below(&mut self, k: usize, start: usize, end: usize, from: usize, to: usize, grants: u64) {
        if self.nodes[k].min == NOBODY || end <= from || to <= start {
            return;
        }
        if from <= start && end <= to {
            self.owe(k, grants);
            return;
        }
        self.pay(k);
        let middle = usize::midpoint(start, end);
        self.subtract_below(2 * k, start, middle, from, to, grants);
        self.subtract_below(2 * k + 1, middle, end, from, to, grants);
        self.update(k);
    }

    /// The first of the leaves `from..to` that needs at most `most`.
    pub(super) fn first(&mut self, from: usize, to: usize, most: u64) -> Option<usize> {
        if from < to { self.first_below(1, 0, self.leaves, from, to, most) } else { None }
    }

    fn first_below(
        &mut self,
        k: usize,
        start: usize,
        end: usize,
        from: usize,
        to: usize,
        most: u64,
    ) -> Option<usize> {
        if self.nodes[k].min > most || end <= from || to <= start {
            return None;
        }
        if end - start == 1 {
            return Some(start);
        }
        self.pay(k);
        let middle = usize::midpoint(start, end);
        self.first_below(2 * k, start, middle, from, to, most)
            .or_else(|| self.first_below(2 * k + 1, middle, end, from, to, most))
    }

    /// Lets the leaves below node `k` be owed `grants` more.
    fn owe(&mut self, k: usize, grants: u64) {
        self.steps += 1;
        let node = &mut self.nodes[k];
        if node.min != NOBODY {
            node.min -= grants;
            node.owed += if k < self.leaves { grants } else { 0 };
        }
    }

    /// Hands what is owed below node `k` to its children.
    fn pay(&mut self, k: usize) {
        self.steps += 1;
        let owed = std::mem::take(&mut self.nodes[k].owed);
        if owed > 0 {
            self.owe(2 * k, owed);
            self.owe(2 * k + 1, owed);
        }
    }

    fn update(&mut self, k: usize) {
        self.steps += 1;
        self.nodes[k].min = self.nodes[2 * k].min.min(self.nodes[2 * k + 1].min);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list.
        #[test]
        fn agrees_with_a_list(
            n in 1usize..40,
            ops in prop::collection::vec((0u8..4, any::<u16>(), any::<u16>(), 0u64..20), 1..200),
        ) {
            let mut tree = Tree::new(n);
            let mut list = vec![NOBODY; n];
            for (op, a, b, value) in ops {
                let (a, b) = (a as usize % n, b as usize % (n + 1));
                let (from, to) = (a.min(b), a.max(b));
                match op {
                    0 => {
                        let value = if value == 19 { NOBODY } else { value * 3 };
                        tree.set(a, value);
                        list[a] = value;
                    }
                    1 => {
                        let most = list[from..to].iter().min().copied().unwrap_or(0);
                        if most != NOBODY {
                            tree.subtract(from, to, most.min(value));
                            let somebody = list[from..to].iter_mut().filter(|v| **v != NOBODY);
                            somebody.for_each(|v| *v -= most.min(value));
                        }
                    }
                    2 => {
                        let first = (from..to).find(|&i| list[i] <= value);
                        prop_assert_eq!(tree.first(from, to, value), first);
                    }
                    _ => prop_assert_eq!(tree.get(a), list[a]),
                }
                prop_assert_eq!(tree.min(), list.iter().min().copied().unwrap());
            }
        }
    }
}
