//! The ingress queue of one class: many producers, one consumer, bounded, and closed once for good. Requests whose
//! callers have left go to the arbiter by a queue of the same make, through another link.
//!
//! Producers push onto a stack whose links are inside the items, so a push allocates nothing. The consumer takes the
//! whole stack with one swap and reverses it: first in, first out per producer, no atomic operation per item, and no
//! ABA problem, since nobody ever pops a single item from the shared end.
//!
//! | field | who may touch it |
//! |---|---|
//! | `head` | producers push by compare-exchange; the consumer swaps it to null, or to `CLOSED` |
//! | `Node::next[LINK]` | the producer before its push succeeds, the consumer after its swap |
//! | `len` | producers add before they push, the consumer subtracts after it has taken |
//!
//! A producer that is suspended anywhere in a push holds up nobody: the stack is whole at every step.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

use super::{
    Arc, AtomicPtr, AtomicUsize, CachePadded, Ordering, Step, UnsafeCell, arc_in_place, fence, point,
};

/// A value that can be queued, with the links inside: one for its ingress queue, one for the queue of requests whose
/// callers have left, which a request may be in at the same time.
#[derive(Debug)]
// In this order: with the counts of an `Arc` in front and a ticket behind it, the links share their line with what both
// halves look at.
#[repr(C)]
pub struct Node<T> {
    next: [UnsafeCell<*mut Node<T>>; 2],
    value: T,
}

/// The link of ingress queues.
pub const INGRESS: usize = 0;
/// The link of the queue of abandoned requests.
pub const ABANDONED: usize = 1;

// SAFETY: `next[LINK]` is touched only by the one holder of the node's `Queued<_, LINK>`, or by the queue that took
// it (see the table above), and it points to nodes that are owned the same way. Sharing a node shares `value`, and
// may drop it on another thread.
unsafe impl<T: Send + Sync> Send for Node<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Node<T> {}

/// The right to queue a value by one of its links: there is one per node and link, so no node is ever in two queues
/// by the same link.
#[derive(Debug)]
pub struct Queued<T, const LINK: usize = INGRESS>(Arc<Node<T>>);

impl<T> Queued<T> {
    /// Puts `value` into a node of its own.
    pub fn new(value: T) -> Self {
        Self::with_both_links(|| value).0
    }

    /// Puts what `value` makes into a node of its own, with the rights to both links.
    #[inline(always)]
    pub fn with_both_links(value: impl FnOnce() -> T) -> (Self, Queued<T, ABANDONED>) {
        let link = || UnsafeCell::new(ptr::null_mut());
        let node = arc_in_place(|| Node { next: [link(), link()], value: value() });
        (Self(node.clone()), Queued(node))
    }
}

impl<T, const LINK: usize> Queued<T, LINK> {
    fn into_raw(self) -> *mut Node<T> {
        let node = Arc::into_raw(self.0).cast_mut();
        node.expose_provenance();
        node
    }

    /// # Safety
    /// `node` comes from [`into_raw`](Self::into_raw) of the same link, once.
    unsafe fn from_raw(node: *mut Node<T>) -> Self {
        // SAFETY: the caller's promise is the one that `from_raw` asks for.
        Self(unsafe { Arc::from_raw(node) })
    }
}

impl<T, const LINK: usize> Deref for Queued<T, LINK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// Why a push failed; it gives the item back.
#[derive(Debug)]
pub enum PushError<T, const LINK: usize = INGRESS> {
    /// As many requests as the capacity are queued or being queued.
    Full(Queued<T, LINK>),
    /// The consumer has closed the queue.
    Closed(Queued<T, LINK>),
}

#[derive(Debug)]
struct Shared<T> {
    ends: CachePadded<Ends<T>>,
    /// The queue owns nodes, so that it may go to another thread only if they may.
    nodes: PhantomData<Arc<Node<T>>>,
}

/// What both ends write, on one cache line: who needs one of the two needs the other.
#[derive(Debug)]
struct Ends<T> {
    head: AtomicPtr<Node<T>>,
    len: AtomicUsize,
    capacity: usize,
}

/// `head` of a closed queue. Nodes are aligned to more than this address.
fn closed<T>() -> *mut Node<T> {
    ptr::without_provenance_mut(1)
}

/// The node at this address, whatever node was there when the address was read: between a producer's look at `head`
/// and its exchange, a node may have been freed and another one allocated in its place.
fn live<T>(node: *mut Node<T>) -> *mut Node<T> {
    ptr::with_exposed_provenance_mut(node.addr())
}

/// The end that any thread may push to.
///
/// ```compile_fail
/// fn sent<T: Send>() {}
/// sent::<tollgate::sync::ingress::Producer<std::rc::Rc<()>>>();
/// ```
#[derive(Debug)]
pub struct Producer<T, const LINK: usize = INGRESS>(Arc<Shared<T>>);

impl<T, const LINK: usize> Clone for Producer<T, LINK> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The end that drains: there is one.
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<tollgate::sync::ingress::Consumer<u32>>();
/// ```
/// ```compile_fail
/// let (_, consumer) = tollgate::sync::ingress::queue::<u32>(1);
/// let second = consumer.clone();
/// ```
#[derive(Debug)]
pub struct Consumer<T, const LINK: usize = INGRESS> {
    shared: Arc<Shared<T>>,
    /// What was taken and not yet handed out, oldest first.
    chain: *mut Node<T>,
}

// SAFETY: `chain` is owned like the nodes of the shared stack; moving the consumer moves them.
unsafe impl<T: Send + Sync, const LINK: usize> Send for Consumer<T, LINK> {}

/// An empty ingress queue that holds up to `capacity` items.
pub fn queue<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    pair(capacity)
}

/// An empty queue of abandoned requests, of which there can be no more than requests.
pub fn abandoned_queue<T>() -> (Producer<T, ABANDONED>, Consumer<T, ABANDONED>) {
    pair(usize::MAX)
}

fn pair<T, const LINK: usize>(capacity: usize) -> (Producer<T, LINK>, Consumer<T, LINK>) {
    let ends = Ends { head: AtomicPtr::new(ptr::null_mut()), len: AtomicUsize::new(0), capacity };
    let shared = Arc::new(Shared { ends: CachePadded::new(ends), nodes: PhantomData });
    (Producer(shared.clone()), Consumer { shared, chain: ptr::null_mut() })
}

impl<T, const LINK: usize> Producer<T, LINK> {
    /// Queues `item`; lock-free.
    ///
    /// # Errors
    /// The queue is full or closed.
    pub fn push(&self, item: Queued<T, LINK>) -> Result<(), PushError<T, LINK>> {
        let Ends { head, len, capacity } = &*self.0.ends;
        // Relaxed: a count, which publishes nothing.
        if len.fetch_add(1, Ordering::Relaxed) >= *capacity {
            len.fetch_sub(1, Ordering::Relaxed);
            return Err(PushError::Full(item));
        }
        point(Step::PushCounted);
        let node = item.into_raw();
        // Relaxed: the value is compared and stored, never followed.
        let mut seen = head.load(Ordering::Relaxed);
        loop {
            if seen == closed() {
                // Acquire: what the consumer did before it closed the queue becomes visible; partner: the swap in
                // `take`.
                fence(Ordering::Acquire);
                len.fetch_sub(1, Ordering::Relaxed);
                // SAFETY: `node` came from `into_raw` above and was not published.
                return Err(PushError::Closed(unsafe { Queued::from_raw(node) }));
            }
            // SAFETY: `node` is not published yet, so this thread alone touches its link.
            unsafe { (*node).next[LINK].with_mut(|next| *next = seen) };
            point(Step::PushLinked);
            // Release: the link and the value become visible to the consumer's swap in `take`. Later pushes are
            // read-modify-writes on `head` and so continue this release sequence.
            match head.compare_exchange_weak(seen, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    point(Step::Pushed);
                    return Ok(());
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Most items that the queue holds.
    pub fn capacity(&self) -> usize {
        self.0.ends.capacity
    }
}

impl<T, const LINK: usize> Consumer<T, LINK> {
    /// Hands up to `most` items to `f`, oldest first, and returns how many.
    pub fn drain(&mut self, most: usize, mut f: impl FnMut(Queued<T, LINK>)) -> usize {
        /// Gives the places of the taken items back, also if `f` panics.
        struct Taken<'a>(&'a AtomicUsize, usize);

        impl Drop for Taken<'_> {
            fn drop(&mut self) {
                // Relaxed: a count, which publishes nothing.
                self.0.fetch_sub(self.1, Ordering::Relaxed);
            }
        }

        let Self { shared, chain } = self;
        let mut taken = Taken(&shared.ends.len, 0);
        while taken.1 < most {
            let Some(item) = pop(&shared.ends.head, chain) else { break };
            taken.1 += 1;
            f(item);
        }
        point(Step::Drained);
        taken.1
    }

    /// Closes the queue for good and hands what it still holds to `f`, oldest first. Every push that has returned
    /// `Ok` is among it; every later one fails.
    pub fn close(&mut self, mut f: impl FnMut(Queued<T, LINK>)) {
        self.drain(usize::MAX, &mut f);
        take::<T, LINK>(&self.shared.ends.head, &mut self.chain, closed());
        self.drain(usize::MAX, f);
    }

    /// Items that are queued or being queued, taken ones included until the drain that hands them out ends.
    pub fn len(&self) -> usize {
        // Relaxed: a count, which publishes nothing.
        self.shared.ends.len.load(Ordering::Relaxed)
    }

    /// Whether there is nothing to drain just now.
    pub fn is_empty(&self) -> bool {
        // Relaxed: callers order it by the fence of their sleep protocol.
        let head = self.shared.ends.head.load(Ordering::Relaxed);
        self.chain.is_null() && (head.is_null() || head == closed())
    }
}

/// The oldest item of `chain`, or of the shared stack if that is empty.
fn pop<T, const LINK: usize>(head: &AtomicPtr<Node<T>>, chain: &mut *mut Node<T>) -> Option<Queued<T, LINK>> {
    if chain.is_null() {
        take::<T, LINK>(head, chain, ptr::null_mut());
    }
    let node = live(*chain);
    if node.is_null() {
        return None;
    }
    // SAFETY: nodes of `chain` were taken from the shared stack and belong to its consumer alone.
    *chain = unsafe { (*node).next[LINK].with(|next| *next) };
    // SAFETY: the node came from the producer's `into_raw` and leaves the chain here, once.
    Some(unsafe { Queued::from_raw(node) })
}

/// Swaps the shared stack for `leave` and puts it, oldest first, into the empty chain of its consumer.
fn take<T, const LINK: usize>(head: &AtomicPtr<Node<T>>, chain: &mut *mut Node<T>, leave: *mut Node<T>) {
    debug_assert!(chain.is_null());
    // Relaxed: only to skip the swap; whoever pushed last also says so elsewhere.
    let seen = head.load(Ordering::Relaxed);
    if seen == closed() || seen == leave {
        return;
    }
    // Acquire: makes visible the links and values that producers released in `push`. Release: whoever finds the
    // queue closed sees what was done before; partner: the fence in `push`.
    let mut newest = head.swap(leave, Ordering::AcqRel);
    point(Step::Taken);
    while !newest.is_null() {
        let node = live(newest);
        // SAFETY: the swap made the whole stack its consumer's own.
        newest = unsafe { (*node).next[LINK].with_mut(|next| std::mem::replace(&mut *next, *chain)) };
        *chain = node;
    }
}

impl<T, const LINK: usize> Drop for Consumer<T, LINK> {
    fn drop(&mut self) {
        self.close(drop);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_up_to_capacity_and_the_refused_item_comes_back() {
        let (producer, mut consumer) = queue(2);
        for i in 0..2 {
            producer.push(Queued::new(i)).unwrap();
        }
        let Err(PushError::Full(back)) = producer.push(Queued::new(9)) else { panic!("over capacity") };
        assert_eq!(*back, 9);
        let mut out = Vec::new();
        assert_eq!(consumer.drain(1, |i| out.push(*i)), 1);
        producer.push(back).unwrap();
        assert_eq!(consumer.drain(9, |i| out.push(*i)), 2);
        assert_eq!(out, [0, 1, 9]);
    }

    #[test]
    fn a_closed_queue_has_handed_out_everything_and_takes_nothing() {
        let (producer, mut consumer) = queue(8);
        producer.push(Queued::new(1)).unwrap();
        let mut out = Vec::new();
        consumer.close(|i| out.push(*i));
        assert_eq!(out, [1]);
        assert!(matches!(producer.push(Queued::new(2)), Err(PushError::Closed(back)) if *back == 2));
        consumer.close(|_| panic!("closed twice, but nothing is in it"));
    }

    #[test]
    fn what_is_left_is_dropped_with_the_consumer() {
        let (producer, mut consumer) = queue(8);
        let value = DataArc::new(());
        for _ in 0..3 {
            producer.push(Queued::new(value.clone())).unwrap();
        }
        consumer.drain(1, drop);
        drop(consumer);
        assert_eq!(DataArc::strong_count(&value), 1);
    }

    use super::super::DataArc;
}
