//! The ingress queue of one class: many producers, one consumer, bounded, and closed once for good.
//!
//! Producers push onto a stack whose links are inside the items, so a push allocates nothing. The consumer takes the
//! whole stack with one swap and reverses it: first in, first out per producer, no atomic operation per item, and no
//! ABA problem, since nobody ever pops a single item from the shared end.
//!
//! | field | who may touch it |
//! |---|---|
//! | `head` | producers push by compare-exchange; the consumer swaps it to null, or to `CLOSED` |
//! | `Node::next` | the producer before its push succeeds, the consumer after its swap |
//! | `len` | producers add before they push, the consumer subtracts after it has taken |
//!
//! A producer that is suspended anywhere in a push holds up nobody: the stack is whole at every step.

use std::ops::Deref;
use std::ptr;

use super::{Arc, AtomicPtr, AtomicUsize, CachePadded, Ordering, UnsafeCell};

/// A value that can be queued, with the link inside.
#[derive(Debug)]
pub struct Node<T> {
    next: UnsafeCell<*mut Node<T>>,
    value: T,
}

// SAFETY: `next` is touched only by the one holder of the node's `Queued`, or by the queue that took it (see the
// table above), and it points to nodes that are owned the same way. Sharing a node shares `value`, and may drop it
// on another thread.
unsafe impl<T: Send + Sync> Send for Node<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Node<T> {}

impl<T> Deref for Node<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The right to queue a value: there is one per node, so no node is ever in two queues.
#[derive(Debug)]
pub struct Queued<T>(Arc<Node<T>>);

impl<T> Queued<T> {
    /// Puts `value` into a node of its own.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Node { next: UnsafeCell::new(ptr::null_mut()), value }))
    }

    /// Another handle to the value, without the right to queue it.
    pub fn share(&self) -> Arc<Node<T>> {
        self.0.clone()
    }

    fn into_raw(self) -> *mut Node<T> {
        Arc::into_raw(self.0).cast_mut()
    }

    /// # Safety
    /// `node` comes from [`into_raw`](Self::into_raw), once.
    unsafe fn from_raw(node: *mut Node<T>) -> Self {
        // SAFETY: the caller's promise is the one that `from_raw` asks for.
        Self(unsafe { Arc::from_raw(node) })
    }
}

impl<T> Deref for Queued<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// Why a push failed; it gives the item back.
#[derive(Debug)]
pub enum PushError<T> {
    /// As many requests as the capacity are queued or being queued.
    Full(Queued<T>),
    /// The consumer has closed the queue.
    Closed(Queued<T>),
}

#[derive(Debug)]
struct Shared<T> {
    head: CachePadded<AtomicPtr<Node<T>>>,
    len: CachePadded<AtomicUsize>,
    capacity: usize,
}

/// `head` of a closed queue. Nodes are aligned to more than this address.
fn closed<T>() -> *mut Node<T> {
    ptr::without_provenance_mut(1)
}

/// The end that any thread may push to.
#[derive(Debug)]
pub struct Producer<T>(Arc<Shared<T>>);

impl<T> Clone for Producer<T> {
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
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    /// What was taken and not yet handed out, oldest first.
    chain: *mut Node<T>,
}

// SAFETY: `chain` is owned like the nodes of the shared stack; moving the consumer moves them.
unsafe impl<T: Send + Sync> Send for Consumer<T> {}

/// An empty queue that holds up to `capacity` items.
pub fn queue<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let shared = Arc::new(Shared {
        head: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
        len: CachePadded::new(AtomicUsize::new(0)),
        capacity,
    });
    (Producer(shared.clone()), Consumer { shared, chain: ptr::null_mut() })
}

impl<T> Producer<T> {
    /// Queues `item`; lock-free.
    ///
    /// # Errors
    /// The queue is full or closed.
    pub fn push(&self, item: Queued<T>) -> Result<(), PushError<T>> {
        let Shared { head, len, capacity } = &*self.0;
        // Relaxed: a count, which publishes nothing.
        if len.fetch_add(1, Ordering::Relaxed) >= *capacity {
            len.fetch_sub(1, Ordering::Relaxed);
            return Err(PushError::Full(item));
        }
        let node = item.into_raw();
        // Relaxed: the value is compared and stored, never followed.
        let mut seen = head.load(Ordering::Relaxed);
        loop {
            if seen == closed() {
                len.fetch_sub(1, Ordering::Relaxed);
                // SAFETY: `node` came from `into_raw` above and was not published.
                return Err(PushError::Closed(unsafe { Queued::from_raw(node) }));
            }
            // SAFETY: `node` is not published yet, so this thread alone touches its link.
            unsafe { (*node).next.with_mut(|next| *next = seen) };
            // Release: the link and the value become visible to the consumer's swap in `take`. Later pushes are
            // read-modify-writes on `head` and so continue this release sequence.
            match head.compare_exchange_weak(seen, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Most items that the queue holds.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }
}

impl<T> Consumer<T> {
    /// Hands up to `most` items to `f`, oldest first, and returns how many.
    pub fn drain(&mut self, most: usize, mut f: impl FnMut(Queued<T>)) -> usize {
        let mut taken = 0;
        while taken < most {
            let Some(item) = self.pop() else { break };
            taken += 1;
            f(item);
        }
        // Relaxed: a count, which publishes nothing.
        self.shared.len.fetch_sub(taken, Ordering::Relaxed);
        taken
    }

    /// Closes the queue for good and hands what it still holds to `f`, oldest first. Every push that has returned
    /// `Ok` is among it; every later one fails.
    pub fn close(&mut self, mut f: impl FnMut(Queued<T>)) {
        self.drain(usize::MAX, &mut f);
        self.take(closed());
        self.drain(usize::MAX, f);
    }

    fn pop(&mut self) -> Option<Queued<T>> {
        if self.chain.is_null() {
            self.take(ptr::null_mut());
        }
        let node = self.chain;
        if node.is_null() {
            return None;
        }
        // SAFETY: nodes of `chain` were taken from the shared stack and belong to this consumer alone.
        self.chain = unsafe { (*node).next.with(|next| *next) };
        // SAFETY: the node came from the producer's `into_raw` and leaves the chain here, once.
        Some(unsafe { Queued::from_raw(node) })
    }

    /// Swaps the shared stack for `leave` and puts it, oldest first, into the empty chain.
    fn take(&mut self, leave: *mut Node<T>) {
        debug_assert!(self.chain.is_null());
        // Relaxed: only to skip the swap; whoever pushed last also says so elsewhere.
        let seen = self.shared.head.load(Ordering::Relaxed);
        if seen == closed() || seen == leave {
            return;
        }
        // Acquire: makes visible the links and values that producers released in `push`.
        let mut newest = self.shared.head.swap(leave, Ordering::Acquire);
        while !newest.is_null() {
            let node = newest;
            // SAFETY: the swap made the whole stack this consumer's own.
            newest = unsafe { (*node).next.with_mut(|next| std::mem::replace(&mut *next, self.chain)) };
            self.chain = node;
        }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.close(drop);
    }
}

#[cfg(all(test, not(loom)))]
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
