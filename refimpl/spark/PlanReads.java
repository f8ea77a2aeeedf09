package refimpl.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import net.razorvine.pickle.IObjectConstructor;
import net.razorvine.pickle.Unpickler;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.LogicalWriteInfoImpl;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.FileSourceStrategy$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * An optimizer rule of the session, for the scans and the writes of the data source `delta-owner`. See plan_reads.py.
 *
 * Spark keeps the files that a Python data source lists with the relation, which a view and a frame keep. This rule
 * gives each query its own listing: the newest version. Scans of the query with equal options, of the same registration
 * of the source, share it. The rule then tells each write what its query reads.
 */
public final class PlanReads extends Rule {
    private static final String FORMAT = "delta-owner";
    /** The option of a Parquet reader, the key of a column's metadata and the option of a write that hold reads. */
    private static final String KEY = "__reads";
    /** The options of a write that hold the session's mode of overwriting partitions and its time zone, when it runs. */
    private static final String MODE = "__mode";
    private static final String ZONE = "__zone";

    /** A source with its own list of files. */
    public static final class Listing extends PythonDataSourceV2 {
        private final PythonDataSourceCreationResult created;
        /** The Python class, which has the warehouse. */
        private final Object registration;

        public Listing(PythonDataSourceCreationResult created, Object registration) {
            this.created = created;
            this.registration = registration;
            setShortName(FORMAT);
        }

        public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
                String name, CaseInsensitiveStringMap options, Option schema) {
            return created;
        }

        /** The scans of one query may ask in several threads. */
        public synchronized PythonDataSourceReadInfo getOrCreateReadInfo(
                String name, CaseInsensitiveStringMap options, StructType schema, boolean streaming) {
            return super.getOrCreateReadInfo(name, options, schema, streaming);
        }
    }

    /** Column names without the aliases of their relation. */
    public static final class Unqualified extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            return node instanceof AttributeReference;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (!isDefinedAt(node)) return otherwise.apply(node);
            return ((AttributeReference) node).withQualifier((Seq) scala.collection.immutable.Nil$.MODULE$);
        }
    }

    /** The arguments of a function that Python pickled. */
    public static final class Arguments implements IObjectConstructor {
        public Object construct(Object[] arguments) {
            return arguments;
        }
    }

    /**
     * A strategy for the columns and conditions of a scan: Spark's own Parquet reader reads the files, if it can. It
     * runs after the optimizer, so that the scans of a query, its subqueries and its writes have their listings.
     */
    public static final class Files extends SparkStrategy {
        public Seq apply(LogicalPlan plan) {
            LogicalPlan end = plan;
            while (end instanceof Project || end instanceof Filter) end = (LogicalPlan) end.children().head();
            try {
                LogicalPlan files = isScan(end) ? ofParquet((DataSourceV2ScanRelation) end) : null;
                if (files != null) return FileSourceStrategy$.MODULE$.apply(onto(plan, files));
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException("this version of Spark is not supported", error);
            }
            return (Seq) scala.collection.immutable.Nil$.MODULE$;
        }

        private static LogicalPlan onto(LogicalPlan plan, LogicalPlan files) {
            if (plan instanceof Project) return new Project(((Project) plan).projectList(), onto(((Project) plan).child(), files));
            if (plan instanceof Filter) return new Filter(((Filter) plan).condition(), onto(((Filter) plan).child(), files));
            return files;
        }

        /** The same columns, from Spark's own reader; null if a task has to read the rows, or to name a missing file. */
        private static LogicalPlan ofParquet(DataSourceV2ScanRelation scan)
                throws ReflectiveOperationException {
            Object request = listed(scan)[1];
            if (request == null || SQLConf.get().caseSensitiveAnalysis()) return null; // files may differ in case
            LogicalPlan read;
            try {
                List given = (List) new ObjectMapper().readValue((String) request, List.class);
                read = SparkSession.active().read().schema((StructType) DataType.fromJson((String) given.get(0)))
                    .options((Map) given.get(1)).parquet((String[]) ((List) given.get(2)).toArray(new String[0]))
                    .queryExecution().analyzed();
            } catch (Exception error) {
                return null;
            }
            if (!(read instanceof LogicalRelation)) return null;
            Map columns = new HashMap();
            for (Iterator each = CollectionConverters.asJava(scan.output()).iterator(); each.hasNext();) {
                Attribute column = (Attribute) each.next();
                columns.put(column.name(), column);
            }
            List output = new ArrayList();
            for (Iterator each = CollectionConverters.asJava(read.output()).iterator(); each.hasNext();) {
                Attribute column = (Attribute) each.next();
                output.add(columns.containsKey(column.name()) ? columns.get(column.name()) : column);
            }
            LogicalRelation files = (LogicalRelation) read;
            files = new LogicalRelation(files.relation(), CollectionConverters.asScala(output).toSeq(),
                files.catalogTable(), false, files.stream());
            return new Project((Seq) scan.output(), files);
        }
    }

    /** Add the rule and its strategy to a session. */
    public void install(ExperimentalMethods methods) {
        Unpickler.registerConstructor("refimpl.spark.data_source", "_files", new Arguments());
        methods.extraOptimizations_$eq((Seq) methods.extraOptimizations().appended(this));
        methods.extraStrategies_$eq((Seq) methods.extraStrategies().appended(new Files()));
    }

    public TreeNode apply(TreeNode plan) {
        try {
            refresh((QueryPlan) plan);
            declare((LogicalPlan) plan);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("this version of Spark is not supported", error);
        }
        return plan;
    }

    /** Tell the plan's write what it reads. A plan of several INSERTs is their union. */
    private void declare(LogicalPlan plan) throws ReflectiveOperationException {
        if (plan instanceof Union) {
            for (Iterator each = CollectionConverters.asJava(plan.children()).iterator(); each.hasNext();) {
                declare((LogicalPlan) each.next());
            }
        }
        Object write = null;
        if (plan instanceof AppendData) {
            write = ((AppendData) plan).write().getOrElse(null);
        } else if (plan instanceof OverwriteByExpression) {
            write = ((OverwriteByExpression) plan).write().getOrElse(null);
        } else if (plan instanceof WriteToDataSourceV2
                && ((WriteToDataSourceV2) plan).batchWrite() instanceof MicroBatchWrite) {
            write = get(((WriteToDataSourceV2) plan).batchWrite(), "writeSupport");
        }
        if ((write instanceof PythonWrite || write instanceof PythonStreamingWrite)
                && FORMAT.equals(get(write, "shortName"))) {
            LogicalWriteInfo info = (LogicalWriteInfo) get(write, "info");
            Map options = new HashMap(info.options().asCaseSensitiveMap());
            options.put(KEY, of(plan));
            options.put(MODE, SQLConf.get().getConfString("spark.sql.sources.partitionOverwriteMode"));
            options.put(ZONE, SQLConf.get().sessionLocalTimeZone());
            set(write, "info", new LogicalWriteInfoImpl(info.queryId(), info.schema(),
                new CaseInsensitiveStringMap(options), info.rowIdSchema(), info.metadataSchema()));
        }
    }

    private static void refresh(QueryPlan plan) throws ReflectiveOperationException {
        List scans = new ArrayList();
        scansOf(plan, scans);
        Map listings = new HashMap();
        for (int round = 0; round < 2; round++) { // a subquery was optimized before, and has its listings already
            for (Iterator each = scans.iterator(); each.hasNext();) {
                DataSourceV2ScanRelation node = (DataSourceV2ScanRelation) each.next();
                PythonDataSourceV2 source = (PythonDataSourceV2) get(node.scan(), "ds");
                Object registration = source instanceof Listing
                    ? ((Listing) source).registration : source.source().dataSourceCls().command();
                List key = new ArrayList();
                key.add(registration);
                key.add(node.relation().options());
                key.add(node.scan().readSchema());
                if (source instanceof Listing) {
                    if (!listings.containsKey(key)) listings.put(key, source);
                } else if (round == 1 && !listings.containsKey(key)) {
                    listings.put(key, new Listing(source.getOrCreateDataSourceInPython(
                        FORMAT, node.relation().options(), Option.apply(node.scan().readSchema())), registration));
                }
                if (round == 1) set(node.scan(), "ds", listings.get(key));
            }
        }
    }

    private static void scansOf(QueryPlan plan, List scans) throws ReflectiveOperationException {
        if (isScan(plan)) scans.add(plan);
        for (Iterator each = below(plan).iterator(); each.hasNext();) scansOf((QueryPlan) each.next(), scans);
    }

    private static boolean isScan(QueryPlan plan) throws ReflectiveOperationException {
        if (!(plan instanceof DataSourceV2ScanRelation)) return false;
        Object scan = ((DataSourceV2ScanRelation) plan).scan();
        return scan instanceof PythonScan && FORMAT.equals(get(scan, "shortName"));
    }

    /** The mark of a scan, and the request for Spark's own reader; each may be null. Its first partition has them. */
    private static Object[] listed(DataSourceV2ScanRelation node) throws ReflectiveOperationException {
        PythonDataSourceReadInfo info = ((PythonDataSourceV2) get(node.scan(), "ds")).getOrCreateReadInfo(
            FORMAT, node.relation().options(), node.scan().readSchema(), false);
        try {
            return (Object[]) new Unpickler().loads((byte[]) info.partitions().head());
        } catch (IOException error) {
            throw new IllegalStateException("cannot read the partitions of " + FORMAT, error);
        }
    }

    private static List below(QueryPlan plan) {
        List plans = new ArrayList(CollectionConverters.asJava(plan.children()));
        plans.addAll(CollectionConverters.asJava(plan.subqueries()));
        return plans;
    }

    /** The reads of an optimized plan, as JSON: for each, its mark and its condition, or null. */
    public String of(LogicalPlan plan) {
        List reads = new ArrayList();
        try {
            walk(plan, null, reads);
            return new ObjectMapper().writeValueAsString(reads);
        } catch (Exception error) {
            throw new IllegalStateException("cannot find the tables that the query reads: " + error, error);
        }
    }

    private static void walk(QueryPlan plan, Expression condition, List reads) throws ReflectiveOperationException {
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            HadoopFsRelation files = (HadoopFsRelation) ((LogicalRelation) plan).relation();
            Option mark = files.options().get(KEY);
            if (mark.isDefined()) {
                add(reads, mark.get(), condition);
            } else if (files.location().getClass().getName().startsWith("org.apache.spark.sql.delta.")) {
                add(reads, ofDeltaSpark(files), null);
            }
        } else if (plan instanceof MapInArrow) {
            for (Iterator each = CollectionConverters.asJava(((MapInArrow) plan).child().output()).iterator(); each.hasNext();) {
                Attribute column = (Attribute) each.next();
                if (column.metadata().contains(KEY)) add(reads, column.metadata().getString(KEY), condition);
            }
        } else if (isScan(plan)) {
            add(reads, listed((DataSourceV2ScanRelation) plan)[0], condition);
        } else if (plan instanceof DataSourceV2ScanRelation) { // of Parquet files, by a setting of the session
            String mark = ((DataSourceV2ScanRelation) plan).relation().options().get(KEY);
            if (mark != null) add(reads, mark, condition);
        } else if (plan instanceof InMemoryRelation) {
            cached(((InMemoryRelation) plan).cacheBuilder().cachedPlan(), reads);
        }
        for (Iterator each = below(plan).iterator(); each.hasNext();) {
            QueryPlan next = (QueryPlan) each.next();
            boolean filtered = plan instanceof Filter && next == ((Filter) plan).child();
            walk(next, filtered ? ((Filter) plan).condition() : null, reads);
        }
    }

    /** The mark of a table that Delta Spark reads. */
    private static String ofDeltaSpark(HadoopFsRelation files) {
        Map mark = new HashMap();
        mark.put("location", ((Path) files.location().rootPaths().head()).toUri().getPath());
        return new ObjectMapper().valueToTree(mark).toString();
    }

    private static void cached(SparkPlan plan, List reads) throws ReflectiveOperationException {
        if (plan.logicalLink().isDefined()) {
            walk((QueryPlan) plan.logicalLink().get(), null, reads);
        } else if (plan instanceof AdaptiveSparkPlanExec) {
            cached(((AdaptiveSparkPlanExec) plan).inputPlan(), reads);
        } else {
            for (Iterator each = CollectionConverters.asJava(plan.children()).iterator(); each.hasNext();) {
                cached((SparkPlan) each.next(), reads);
            }
        }
    }

    private static void add(List reads, Object mark, Expression condition) {
        List read = new ArrayList();
        read.add(mark);
        read.add(condition == null ? null : ((Expression) condition.transform(new Unqualified())).sql());
        reads.add(read);
    }

    private static Object get(Object from, String name) throws ReflectiveOperationException {
        Field field = from.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(from);
    }

    private static void set(Object on, String name, Object value) throws ReflectiveOperationException {
        Field field = on.getClass().getDeclaredField(name);
        field.setAccessible(true);
        field.set(on, value);
    }
}
