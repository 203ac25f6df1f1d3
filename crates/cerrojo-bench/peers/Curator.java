// Takes turns with Curator's InterProcessMutex, as it comes.
//
// The protocol is that of `cerrojo_bench::fleet`: `ready` is printed, a line on standard input starts the turns, they end
// with the standard input or after `--rounds`, and then all of them are printed as one line of JSON.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public final class Curator {
  private final Map<String, String> job;
  private final CuratorFramework client;
  private final Counter counter;
  private final CountDownLatch over = new CountDownLatch(1);

  public static void main(String[] words) throws Exception {
    Map<String, String> job = new HashMap<>();
    for (String word : words) {
      String[] parts = word.split("=", 2);
      job.put(parts[0], parts.length == 2 ? parts[1] : "");
    }
    new Curator(job).run();
    // Threads of the client are not waited for.
    System.exit(0);
  }

  private Curator(Map<String, String> job) throws Exception {
    this.job = job;
    String servers = job.get("--url").replaceFirst("^zookeeper://", "");
    int ttl = number("--ttl");
    client = CuratorFrameworkFactory.newClient(servers, ttl, ttl, new ExponentialBackoffRetry(100, 10));
    client.start();
    client.blockUntilConnected();
    counter = job.containsKey("--counter") ? new Counter(number("--counter-at")) : null;
  }

  private void run() throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    input.readLine();
    Thread ear = new Thread(() -> awaitEnd(input));
    ear.setDaemon(true);
    ear.start();
    System.out.println(turns());
    client.close();
  }

  private void awaitEnd(BufferedReader input) {
    try {
      while (input.readLine() != null) {}
    } catch (IOException gone) {
      // That is an end too.
    }
    over.countDown();
  }

  /** All turns of all tasks; a task that fails ends the program. */
  private String turns() throws Exception {
    ExecutorService threads = Executors.newCachedThreadPool();
    List<Future<List<String>>> tasks = new ArrayList<>();
    for (int task = 0; task < number("--tasks"); task++) {
      tasks.add(threads.submit(takeTurns(task)));
    }
    List<String> turns = new ArrayList<>();
    for (Future<List<String>> task : tasks) {
      turns.addAll(task.get());
    }
    return turns.toString();
  }

  private Callable<List<String>> takeTurns(int task) {
    String name = job.get("--name") + (job.containsKey("--own-names") ? "/" + task : "");
    InterProcessMutex lock = new InterProcessMutex(client, "/" + name);
    return () -> {
      List<String> turns = new ArrayList<>();
      while (over.getCount() > 0 && turns.size() < number("--rounds")) {
        long asked = System.nanoTime();
        lock.acquire();
        long acquired = System.nanoTime();
        work();
        turns.add("[" + task + "," + asked + "," + acquired + "," + System.nanoTime() + "]");
        lock.release();
        // An end of the pause before its time is meant.
        over.await(number("--between"), TimeUnit.MILLISECONDS);
      }
      return turns;
    };
  }

  /** Reads, adds and writes as carelessly as it can: only the lock around it makes it right. */
  private void work() throws Exception {
    String key = job.get("--counter");
    String before = counter == null ? null : counter.command("GET", key);
    if (number("--hold") > 0) {
      Thread.sleep(number("--hold"));
    }
    if (counter != null) {
      long next = before == null ? 1 : Long.parseLong(before) + 1;
      counter.command("SET", key, Long.toString(next));
      counter.command("RPUSH", key + "/order", job.get("--id"));
    }
  }

  private int number(String option) {
    return (int) Math.min(Long.parseLong(job.get(option)), Integer.MAX_VALUE);
  }

  /** A connection to Redis, which has the counter; one task at a time uses it. */
  private static final class Counter {
    private final Socket socket;
    private final BufferedReader answers;

    Counter(int port) throws IOException {
      socket = new Socket("127.0.0.1", port);
      answers = new BufferedReader(new InputStreamReader(socket.getInputStream()));
    }

    /** The value or number that was answered; null if there is none. */
    synchronized String command(String... words) throws IOException {
      StringBuilder text = new StringBuilder("*" + words.length + "\r\n");
      for (String word : words) {
        text.append("$" + word.length() + "\r\n" + word + "\r\n");
      }
      socket.getOutputStream().write(text.toString().getBytes(StandardCharsets.US_ASCII));
      String answer = answers.readLine();
      if (answer.startsWith("-")) {
        throw new IOException(answer);
      }
      boolean isValue = answer.startsWith("$") && !answer.equals("$-1");
      return isValue ? answers.readLine() : answer.equals("$-1") ? null : answer.substring(1);
    }
  }
}
